"""The compiled form of ``kafka_producer.py``: of what each record calls."""

cimport cython
from libc.stdint cimport int64_t

from pykclient.producer._batch_start cimport append_in_new_batch
from pykclient.producer._record_fields cimport FutureState
from pykclient.producer._send_path cimport Place, Route, SendPath, SendState, append_plain
from pykclient.record._append_state cimport is_plain, is_timestamp, size_of_headers, unchanging

from pykclient.producer.kafka_producer import KafkaProducer as PythonProducer

cdef object send_python = PythonProducer.send


class KafkaProducer:
    def send(
        SendState self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None, on_delivery=None
    ):
        cdef SendPath path
        cdef Route route
        cdef FutureState future
        cdef int64_t timestamp = 0
        cdef Place place
        cdef bint has_timestamp = timestamp_ms is not None
        cdef Py_ssize_t headers_size = 1
        cdef object key_bytes = key, value_bytes = value, serialized = None, written = None
        with cython.critical_section(self):  # nothing with a GIL
            path = self.path
        if path is None:
            return send_python(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        route = path.route(topic)
        place.number = -1
        if route is None or (
            partition is not None
            and not (is_timestamp(partition, &place.number) and 0 <= place.number < route.partition_count)
        ):
            return send_python(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        # The twin handles invalid arguments, before a serializer is called.
        if on_delivery is not None and not callable(on_delivery):
            return send_python(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if timestamp_ms is not None and not (is_timestamp(timestamp_ms, &timestamp) and timestamp >= 0):
            return send_python(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if path.share is not None:
            headers, on_delivery = path.share(headers, on_delivery)
        if headers is not None:
            written = unchanging(headers)
            headers_size = size_of_headers(written)
            if headers_size < 0:
                return send_python(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        if not (path.plain_keys and is_plain(key) and path.plain_values and is_plain(value)):
            try:
                if not (path.plain_keys and is_plain(key)):
                    key_bytes = self._serialize(path.key_serializer, "key", topic, headers, key)
                if not (path.plain_values and is_plain(value)):
                    value_bytes = self._serialize(path.value_serializer, "value", topic, headers, value)
            except Exception as error:
                return self._failed_to_serialize(error, topic, partition, headers, on_delivery)
            serialized = (key_bytes, value_bytes)
            if headers is not None:  # a serializer may have added headers
                written = unchanging(headers)
                headers_size = size_of_headers(written)
        # Nothing changes until the record is appended, so the twin can still handle any uncommon case.
        if headers_size > 0:
            future = append_plain(
                path,
                route,
                &place,
                key_bytes,
                value_bytes,
                written,
                headers_size,
                has_timestamp,
                &timestamp,
                on_delivery,
            )
            if future is not None:
                return future
            if place.starts_batch:
                return append_in_new_batch(
                    self,
                    topic,
                    path,
                    route,
                    &place,
                    timestamp,
                    key_bytes,
                    value_bytes,
                    written,
                    headers_size,
                    on_delivery,
                )
            if not has_timestamp and timestamp:  # a clock is read once for each record
                timestamp_ms = timestamp
        if serialized is None:
            return send_python(self, topic, value, key, headers, partition, timestamp_ms, on_delivery)
        return self._do_send(topic, value, key, headers, partition, timestamp_ms, on_delivery, serialized)
