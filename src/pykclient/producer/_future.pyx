"""The compiled form of ``future.py``: of what each batch calls."""

from pykclient.producer._record_fields cimport ResultState

from pykclient.producer.future import ProduceRequestResult as PythonResult

cdef object done_python = PythonResult.done


class ProduceRequestResult:
    def done(ResultState self, defers=False):
        cdef object waiting
        self._lock.acquire()
        try:
            if self.listeners:
                waiting = None
            else:
                waiting = self._waiting
                self.completed = True
                self.settled = True
                self.sender_thread = None
                self._waiting = ()
        finally:
            self._lock.release()
        if waiting is None:
            return done_python(self, defers)
        for signal in waiting:
            signal.set()
        return True
