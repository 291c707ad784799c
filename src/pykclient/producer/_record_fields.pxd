# The fields of batches, futures and sequence numbers, for the compiled modules that use them.

from libc.stdint cimport int64_t

from pykclient.producer._queue_state cimport Mutex
from pykclient.record._append_state cimport AppendState


cdef class ResultState:
    cdef public object _clock
    cdef public Mutex _lock
    cdef public object _waiting
    cdef public object error_for
    cdef public object listeners
    cdef public object parts
    cdef public object sender_thread
    cdef public object topic_partition
    cdef public int64_t base_offset
    cdef public int64_t created_ms
    cdef public int64_t log_append_time_ms
    cdef public int64_t record_count
    cdef public bint completed
    cdef public bint settled


cdef class BatchState:
    cdef type _future_type
    cdef public AppendState _builder
    cdef public ResultState produce_future
    cdef public object _clock
    cdef public object current_leader_epoch
    cdef public object final_state
    cdef public object loan
    cdef public object state
    cdef public object topic_partition
    cdef public int64_t _attempts_when_leader_last_changed
    cdef public int64_t appended_bytes
    cdef public int64_t attempts
    cdef public int64_t created_ms
    cdef public int64_t drained_ms
    cdef public int64_t last_attempt_ms
    cdef public int64_t max_record_size
    cdef public int64_t producer_id
    cdef public int64_t retry_backoff_ms
    cdef public int64_t size_in_bytes
    cdef public double compression_ratio
    cdef public int base_sequence
    cdef public int producer_epoch
    cdef public bint in_retry
    cdef public bint is_open
    cdef public bint is_split_batch
    cdef public bint may_be_written
    cdef public bint sequence_has_been_reset


cdef class FutureState:
    cdef public object _result
    cdef public Py_ssize_t index
    cdef public int64_t _timestamp_ms
    cdef public Py_ssize_t _key_size
    cdef public Py_ssize_t _value_size


cdef FutureState new_future(BatchState batch, int64_t timestamp, object key, object value, int64_t size)


cdef class TxnPartitionState:
    cdef public list in_flight
    cdef public object producer_id_and_epoch
    cdef public object topic_partition
    cdef public int64_t last_acked_offset
    cdef public int64_t last_acked_sequence
    cdef public int64_t last_numbered_ms
    cdef public int64_t next_sequence
    cdef public bint is_known_to_broker


cdef class SharedDelivery:
    pass


cdef inline bint is_shared(list listeners, object on_delivery):
    """Return whether the batch's last record has the same delivery, and shares it (Python: add_delivery)."""
    cdef Py_ssize_t count = len(listeners)
    return count > 0 and (<tuple>listeners[count - 1])[1] is on_delivery and isinstance(on_delivery, SharedDelivery)
