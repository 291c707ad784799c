"""A harness that interrupts a call at every place where CPython may run a signal handler, one place after another.

CPython runs signal handlers on the main thread, between two instructions of Python code: after it enters a function
(``RESUME``), after a call, and after a backward jump. It does not run them between ``with lock:`` and the body of the
block, nor between the end of the body and the release of the lock. A test that interrupts a call at each of these
places in turn finds every window that a signal might otherwise hit only by chance::

    for place in places():
        with place:                                  # adds the name of the place to any failure in the block
            producer = fresh_producer()
            place.interrupt(lambda: producer.send("t", b"1"))
            check(producer)

In the last round no place is left: the call runs to its end and is checked like the others. Instead of raising an
exception, the harness can run a function at the place, as a signal handler or ``__del__`` would::

    for place in places(run=producer.close): ...

The harness interrupts only code under ``src/pykclient``, on the thread that calls ``interrupt``. The places of a call
are therefore the same in each run if the call does the same. A call to a Python function counts as a place as well,
although CPython 3.11 to 3.14 do not always check for signals when such a call returns: it depends on how the function
is called.
"""

from __future__ import annotations

import dis
import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, NoReturn

import pytest

import pykclient

SOURCE = str(Path(pykclient.__file__).parent)

#: The limit of places in one call; a call with more is assumed to loop forever.
MOST_PLACES = 5_000

_CALLS = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})
#: Python 3.11 has conditional backward jumps; they check for signals only when they jump.
_JUMPS = frozenset(
    {"JUMP_BACKWARD"} | {f"POP_JUMP_BACKWARD_IF_{condition}" for condition in ("TRUE", "FALSE", "NONE", "NOT_NONE")}
)
#: The part of RESUME's argument that says where the function resumes. CPython checks for signals at the start and after
#: a ``yield``, but not after ``yield from`` and ``await``.
_RESUME_LOCATION = 3
_RESUME_AFTER_YIELD_FROM = 2

_instructions: dict[CodeType, dict[int, dis.Instruction]] = {}
_edges: dict[CodeType, frozenset[int]] = {}


class Interrupted(BaseException):
    """Raised at a place, as KeyboardInterrupt or SystemExit would be."""


class Place:
    """One place of a call, numbered from 1. ``reached`` is true once the call has reached it."""

    def __init__(self, number: int, run: Callable[[], object], under: str) -> None:
        self.number = number
        self.was_called = False
        self.reached = False
        #: The location of the place: file:line, function and instruction. Known once the place is reached.
        self.name = f"place {number} (not reached)"
        self._run = run
        self._under = under
        self._seen = 0

    def interrupt(self, call: Callable[[], Any]) -> BaseException | None:
        """Run ``call`` and interrupt it here. Return the exception that it raised, or None if it completed."""
        tracer = _Tracer(self._at_place, self._under)
        self.was_called = True
        before, profile_before, collects = sys.gettrace(), sys.getprofile(), gc.isenabled()
        gc.disable()  # a __del__ left over from another call is not a place of this one
        sys._getframe().f_trace_opcodes = True  # Python 3.12 requires this before settrace
        sys.setprofile(tracer.on_return)
        sys.settrace(tracer.on_call)
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - the test judges it
            return error
        finally:
            sys.settrace(before)
            sys.setprofile(profile_before)
            if collects:
                gc.enable()
        return None

    def _at_place(self, frame: FrameType, instruction: dis.Instruction) -> None:
        self._seen += 1
        if self._seen != self.number:
            return
        self.reached = True
        code = frame.f_code
        file = Path(code.co_filename)
        line = instruction.positions.lineno if instruction.positions is not None else frame.f_lineno
        self.name = f"place {self.number}: {file.name}:{line} {code.co_qualname} after {instruction.opname}"
        self._run()

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if error is not None:
            error.add_note(f"interrupted at {self.name}")

    def __repr__(self) -> str:
        return f"<Place {self.name}>"


def one_place_in(every: int) -> pytest.MarkDecorator:
    """Parametrize a test by ``every``: `make test` interrupts at one of so many places, `make test-full` at each."""
    each = pytest.param(1, marks=[pytest.mark.exhaustive, pytest.mark.timeout(900)])
    return pytest.mark.parametrize("every", [every, each])


def places(
    error: type[BaseException] = Interrupted,
    run: Callable[[], object] | None = None,
    under: str = SOURCE,
    every: int = 1,
) -> Iterator[Place]:
    """Yield the places of a call, until one that it does not reach.

    ``error`` is raised at each place, or ``run`` is called there if given. ``under`` is the folder of the code to
    interrupt. With ``every``, only one in so many places is yielded. Raises AssertionError after a round without
    ``place.interrupt``, if the call reaches no place at all, or after MOST_PLACES.
    """

    def fail() -> NoReturn:
        raise error

    for number in range(1, MOST_PLACES + 1, every):
        place = Place(number, fail if run is None else run, under)
        yield place
        if not place.reached:
            assert place.was_called, "nothing was called with place.interrupt()"
            assert number > 1, f"the call runs no code under {under}: it was never interrupted"
            return
    raise AssertionError(f"the call has more than {MOST_PLACES} places")


class _Tracer:
    """Reports each place that code below a folder passes.

    A place is reported before the instruction that follows it, and that instruction raises the exception. CPython would
    raise it from the call itself. That makes a difference if the call is the last instruction of a ``try`` or ``with``
    block, as in ``return f()``: such a place is reported when the callee returns.
    """

    def __init__(self, at_place: Callable[[FrameType, dis.Instruction], None], under: str) -> None:
        self._at_place = at_place
        self._under = under
        self._before: dict[FrameType, dis.Instruction] = {}
        self._edge: FrameType | None = None  # the frame that makes such a call
        self._is_c_call = False
        self._is_away = False  # true while the code at the place runs, which is not interrupted itself

    def on_call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        """Trace the instructions of a new frame if its code is to be interrupted."""
        code = frame.f_code
        if self._is_away or not code.co_filename.startswith(self._under) or code.co_name == "__del__":
            return None  # CPython prints an exception that a __del__ raises, and the call goes on
        frame.f_trace = self.on_event  # Python 3.13 honours f_trace_opcodes only if f_trace is set
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        # The RESUME event has already happened: tracing of a frame begins there.
        instruction = _instructions_of(frame.f_code)[frame.f_lasti]
        if instruction.opname == "RESUME":
            self._before[frame] = instruction
        return self.on_event

    def on_event(self, frame: FrameType, event: str, _argument: object) -> Any:
        """Before each instruction, report the one before it if CPython may check for signals there."""
        if event == "opcode":
            instruction = _instructions_of(frame.f_code)[frame.f_lasti]
            before = self._before.get(frame)
            self._before[frame] = instruction
            if self._edge is frame:
                self._edge = None
            is_place = before is not None and _looks_for_signals(before, instruction)
            if is_place and before is not None and before.offset not in _edges_of(frame.f_code):
                self._report(frame, before)
            if instruction.opname in _CALLS and instruction.offset in _edges_of(frame.f_code):
                self._edge, self._is_c_call = frame, False
        elif event == "return":
            self._before.pop(frame, None)
        return self.on_event

    def on_return(self, frame: FrameType, event: str, _argument: object) -> None:
        """Report a place at the end of a block, when the call is over but has not returned to its frame yet."""
        edge = self._edge
        if edge is None or self._is_away:
            return
        if event == "c_call" and frame is edge:
            self._is_c_call = True
        elif (event == "c_return" and frame is edge) or (
            event == "return" and frame.f_back is edge and not self._is_c_call
        ):
            self._edge = None
            self._report(edge, self._before[edge])

    def _report(self, frame: FrameType, instruction: dis.Instruction) -> None:
        self._is_away = True
        try:
            self._at_place(frame, instruction)
        finally:
            self._is_away = False


def _looks_for_signals(instruction: dis.Instruction, following: dis.Instruction) -> bool:
    name = instruction.opname
    if name == "RESUME":
        return (instruction.arg or 0) & _RESUME_LOCATION < _RESUME_AFTER_YIELD_FROM
    if name in _JUMPS:
        return following.offset <= instruction.offset
    # An exception in the call goes straight to its handler: CPython does not check for signals on the way.
    return name in _CALLS and following.opname != "PUSH_EXC_INFO"


def _instructions_of(code: CodeType) -> dict[int, dis.Instruction]:
    found = _instructions.get(code)
    if found is None:
        found = _instructions[code] = {instruction.offset: instruction for instruction in dis.get_instructions(code)}
    return found


def _edges_of(code: CodeType) -> frozenset[int]:
    """Return the offsets of calls whose exceptions have another handler than those of the next instruction."""
    found = _edges.get(code)
    if found is None:
        table = dis._parse_exception_table(code)  # type: ignore[attr-defined]

        def handler(offset: int) -> int | None:
            return next((entry.target for entry in table if entry.start <= offset < entry.end), None)

        instructions = list(_instructions_of(code).values())
        found = _edges[code] = frozenset(
            instruction.offset
            for instruction, following in itertools.pairwise(instructions)
            if instruction.opname in _CALLS and handler(instruction.offset) != handler(following.offset)
        )
    return found
