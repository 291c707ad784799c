"""The compiled form of ``batch_walks.py``.

C code handles the usual batches, and leaves all other ones to Python before it has changed anything: retries, batches
with listeners, first batches of a partition, transactions, codecs, partitions that are muted while they are in flight.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from pykclient.producer._pool_state cimport Loan
from pykclient.producer._queue_state cimport QueueState
from pykclient.producer._record_fields cimport BatchState, ResultState, TxnPartitionState
from pykclient.record._append_state cimport AppendState, estimated_size, is_full

from heapq import heappush as _heappush

from pykclient.clock import FOREVER_MS
from pykclient.producer.producer_batch import ANSWERED, DONE, DRAINED, QUEUED
from pykclient.producer.batch_walks import MOST_OUTDATED
from pykclient.producer.batch_walks import drain_queues as _drain_queues
from pykclient.producer.future import NO_OFFSET
from pykclient.producer.producer_batch import SUCCEEDED
from pykclient.producer.transactions.producer_id_manager import REST_MS, SequenceNumbers
from pykclient.record.record_batch import MAX_INT32, NO_SEQUENCE

cdef object heappush = _heappush, drain_python = _drain_queues
cdef object number_python = SequenceNumbers.number, note_python = SequenceNumbers.handle_completed_batch
cdef object queued = QUEUED, drained = DRAINED, answered = ANSWERED, done = DONE, succeeded = SUCCEEDED
cdef int64_t forever_ms = FOREVER_MS, rest_ms = REST_MS, max_sequence = MAX_INT32, no_offset = NO_OFFSET
cdef int no_sequence = NO_SEQUENCE
cdef Py_ssize_t most_outdated = MOST_OUTDATED


# --- filing ------------------------------------------------------------------------------------------------------------

def file_queues(waiting, dict queues, snapshot):
    cdef object file_python = waiting.file_queue, nodes = waiting.nodes, muted = waiting.muted
    cdef object leader = None, of_node = None, numbers = None
    cdef list heap = None
    cdef dict of_leader = None
    cdef QueueState queue
    cdef BatchState first
    cdef Py_ssize_t count
    cdef int64_t due_ms, expiry_ms
    cdef int64_t next_expiry_ms = waiting.next_expiry_ms
    cdef int64_t linger_ms = waiting._linger_ms, delivery_timeout_ms = waiting._delivery_timeout_ms
    for queue in queues:
        if queue.leader is not leader and queue.leader is not None:
            leader = queue.leader
            of_node = nodes.get(leader.id)
            if of_node is not None:
                of_leader, heap, numbers = of_node.waiting, of_node._due, of_node._numbers
        first = None
        due_ms = 0
        if queue.snapshot is snapshot and queue.leader is leader and of_node is not None:
            queue.lock.acquire()
            try:
                count = len(queue.batches)
                if count:
                    first = queue.batches[0]
                    if first.retry_backoff_ms or not (
                        first.current_leader_epoch is None or first.current_leader_epoch is queue.leader_epoch
                    ):
                        first = None
                if first is not None:
                    expiry_ms = first.created_ms + delivery_timeout_ms
                    if expiry_ms < next_expiry_ms:
                        next_expiry_ms = expiry_ms
                    if first.current_leader_epoch is None and queue.leader_epoch is not None:
                        first._attempts_when_leader_last_changed = first.attempts
                        first.current_leader_epoch = queue.leader_epoch
                    if linger_ms and count == 1 and first.is_open and not is_full(first._builder):
                        due_ms = max(due_ms, first.last_attempt_ms + linger_ms)
            finally:
                queue.lock.release()
        if first is None:
            waiting.next_expiry_ms = next_expiry_ms
            file_python(queue, snapshot)
            next_expiry_ms = waiting.next_expiry_ms
            leader = of_node = None  # the node may be a new one
            continue
        queue.topic_info.changes += 1
        if muted and queue.topic_partition in muted:
            due_ms = forever_ms
        of_leader.setdefault(queue)
        if queue.node is of_node and queue.due_ms == due_ms:
            continue
        queue.node = of_node
        queue.due_ms = due_ms
        if due_ms == forever_ms:
            continue
        heappush(heap, (due_ms, next(numbers), queue))
        if len(heap) > 2 * len(of_leader) + most_outdated:
            of_node.drop_outdated()
            heap = of_node._due
    waiting.next_expiry_ms = next_expiry_ms


# --- draining ----------------------------------------------------------------------------------------------------------

cdef TxnPartitionState entry_for(object entries, QueueState queue, BatchState first, object producer_id_and_epoch):
    """Return the sequence numbers of the queue's partition if `first` may be sent now; None where Python must tell."""
    cdef AppendState builder = first._builder
    cdef PyObject *found = PyDict_GetItemWithError(entries, queue.topic_partition)
    cdef TxnPartitionState entry
    if found == NULL:
        return None
    entry = <TxnPartitionState>found
    if (
        first.base_sequence != no_sequence
        or builder.is_closed
        or entry.producer_id_and_epoch is not producer_id_and_epoch
        or (entry.in_flight and not entry.is_known_to_broker)
        or entry.next_sequence + builder.num_records - 1 > max_sequence
    ):
        return None
    return entry


cdef int number(
    TxnPartitionState entry, BatchState batch, int64_t producer_id, int producer_epoch, int64_t now_ms
) except -1:
    """Do what ``SequenceNumbers.number`` does with a batch for which there is an entry, and numbers."""
    cdef AppendState builder = batch._builder
    cdef BatchState last
    if not entry.in_flight and now_ms - entry.last_numbered_ms >= rest_ms:
        entry.is_known_to_broker = False
    entry.last_numbered_ms = now_ms
    builder.producer_id = batch.producer_id = producer_id
    builder.producer_epoch = batch.producer_epoch = producer_epoch
    builder.base_sequence = batch.base_sequence = <int>entry.next_sequence
    builder.is_transactional = False
    entry.next_sequence += builder.num_records
    if entry.in_flight:
        last = entry.in_flight[len(entry.in_flight) - 1]
        if (
            last.producer_id != producer_id
            or last.producer_epoch != producer_epoch
            or last.base_sequence > batch.base_sequence
        ):
            (<object>entry).add_in_flight_batch(batch)
            return 0
    entry.in_flight.append(batch)
    return 0


cdef bint is_full_batch(BatchState batch) noexcept:
    return not batch.is_open or is_full(batch._builder)


def drain_queues(accumulator, drain):
    cdef object manager = accumulator._id_manager, waiting = accumulator.waiting
    cdef object register = accumulator.register, of_node = drain.of_node
    cdef object backlog = register._backlog, muted = waiting.muted, changed_queues = waiting.changed_queues
    cdef object producer_id_and_epoch = None
    cdef object entries = None
    cdef dict held = register.held
    cdef int64_t producer_id = 0, most = drain.max_size, now_ms = drain.now_ms, size = 0
    cdef int producer_epoch = 0
    cdef bint is_numbered = manager is not None
    cdef list ready = drain.ready, queues = drain.queues
    cdef QueueState queue
    cdef BatchState first
    cdef TxnPartitionState entry = None
    cdef Py_ssize_t count
    cdef bint is_left
    if accumulator._config.guarantee_message_order or accumulator._is_compressed:
        drain_python(accumulator, drain)
        return
    if is_numbered:
        if manager.is_transactional or not manager.is_settled or type(manager).number is not number_python:
            drain_python(accumulator, drain)
            return
        producer_id_and_epoch = manager.producer_id_and_epoch
        producer_id, producer_epoch = producer_id_and_epoch
        if producer_id < 0 or producer_epoch < 0:
            drain_python(accumulator, drain)
            return
        entries = manager._partitions.entries
    for queue in of_node.waiting:
        if muted and queue.topic_partition in muted:
            continue
        is_left = False
        first = None
        queue.lock.acquire()
        try:
            count = len(queue.batches)
            if not count:
                continue
            first = queue.batches[0]
            if first.retry_backoff_ms or first.state is not queued:
                is_left = True
            elif ready and size + estimated_size(first._builder) > most:
                of_node.has_due_rest = True
                break
            elif first.loan is not None and backlog is not None and (<Loan>first.loan).queued:
                is_left = True
            elif is_numbered:
                entry = entry_for(entries, queue, first, producer_id_and_epoch)
                is_left = entry is None
            if not is_left:
                held[first] = None
                first.state = drained
                queue.batches.popleft()
                if count > 1:
                    changed_queues.append(queue)
                    if count > 2 or is_full_batch(queue.batches[0]):
                        of_node.has_due_rest = True
        finally:
            queue.lock.release()
        if is_left:
            drain.size = size
            if not accumulator.drain_queue(queue, drain):
                break
            size = drain.size
            continue
        queues.append(queue)
        try:
            if is_numbered:
                number(entry, first, producer_id, producer_epoch, now_ms)
            (<object>first).close()
        except Exception as error:
            accumulator.fail_to_close(first, error)
            continue
        queue.last_batch_bytes = first.size_in_bytes
        size += first.size_in_bytes
        if first.drained_ms < now_ms:
            first.drained_ms = now_ms
        ready.append(first)


# --- completing --------------------------------------------------------------------------------------------------------

cdef int decide(BatchState batch, int64_t base_offset, int64_t log_append_time_ms) except -1:
    """Do what ``ProducerBatch.decide`` does with a success."""
    cdef ResultState result = batch.produce_future
    result.base_offset = base_offset
    result.log_append_time_ms = log_append_time_ms
    result.error_for = None
    result.record_count = batch._builder.num_records
    result.created_ms = batch.created_ms
    batch.final_state = succeeded
    return 0


cdef int note(TxnPartitionState entry, BatchState batch, int64_t base_offset) except -1:
    """Do what ``SequenceNumbers.handle_completed_batch`` does with a batch that has succeeded in time."""
    cdef int64_t count = batch._builder.num_records
    cdef int64_t producer_id
    cdef int producer_epoch
    producer_id, producer_epoch = entry.producer_id_and_epoch
    if producer_id == batch.producer_id and producer_epoch == batch.producer_epoch:
        entry.last_acked_sequence = max(entry.last_acked_sequence, batch.base_sequence + count - 1)
        entry.is_known_to_broker = True
    if base_offset != no_offset and base_offset + count - 1 > entry.last_acked_offset:
        entry.last_acked_offset = base_offset + count - 1
    if entry.in_flight and entry.in_flight[0] is batch:
        del entry.in_flight[0]
    else:
        (<object>entry).remove_in_flight_batch(batch)
    return 0


def succeed_written(register, dict batches, topic, written):
    cdef list strangers = [], late = []
    cdef object manager = register._id_manager, thread = register._thread
    cdef object returned = register._pool.returned
    cdef dict held = register.held, incomplete = register.incomplete
    cdef object entries = None
    cdef tuple fields
    cdef object index, found
    cdef PyObject *entry = NULL
    cdef BatchState batch
    cdef int64_t base_offset, log_append_time_ms
    cdef bint is_common = not register._is_ordered
    if manager is not None:
        entries = manager._partitions.entries
        is_common = is_common and type(manager).handle_completed_batch is note_python
    for fields in written:
        index, base_offset, log_append_time_ms = fields[0], fields[2], fields[3]
        found = batches.pop((topic, index), None)
        if found is None:
            strangers.append(index)
            continue
        batch = <BatchState?>found
        if is_common and manager is not None:
            entry = PyDict_GetItemWithError(entries, batch.topic_partition)
        if (
            not is_common
            or batch.final_state is not None
            or batch.state is not answered
            or (manager is not None and entry == NULL)
        ):
            if not register.succeed(found, base_offset, log_append_time_ms):
                late.append(found)
            continue
        decide(batch, base_offset, log_append_time_ms)
        if manager is not None:
            note(<TxnPartitionState>entry, batch, base_offset)
        if batch.produce_future.listeners:
            register._conclude(found, returned.append)
            continue
        if batch._builder.memory is not None:
            returned.append(batch._builder.memory)
        if batch.loan is not None:
            returned.append(batch.loan)
        if batch.produce_future.settled or (<object>batch.produce_future).done(False):
            incomplete.pop(found, None)
        else:
            thread.results.append(found)
        batch.state = done
        held.pop(found, None)
    return strangers, late
