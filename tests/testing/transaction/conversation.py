"""A conversation of a client with a transaction coordinator and with partition leaders: requests and responses as text.

``python -m tests.testing.transaction.conversation`` records the responses of a real broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pykclient.protocol.message import Message, Response
from pykclient.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykclient.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from pykclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pykclient.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from pykclient.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pykclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pykclient.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from pykclient.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from pykclient.record.memory_records import MemoryRecords
from pykclient.record.memory_records_builder import MemoryRecordsBuilder
from tests.support.any_kafka import AnyKafka
from tests.support.wait import eventually
from tests.testing.group.conversation import Conversation

ANSWERS = Path(__file__).with_name("answers_of_kafka.json")

CONCURRENT_TRANSACTIONS = 51
COMMIT, ABORT = True, False


class Identity(NamedTuple):
    """A producer's id and epoch."""

    id: int
    epoch: int

    def bumped(self, by: int = 1) -> Identity:
        return Identity(self.id, self.epoch + by)


NOBODY = Identity(-1, -1)


class TransactionConversation(Conversation):
    """A conversation with transactional ids of its own."""

    def __init__(self, kafka: AnyKafka) -> None:
        super().__init__(kafka)
        self.txn = self._call(f"txn-{self.topic[-8:]}", "TXN")

        def coordinator_is_there() -> bool:
            find = FindCoordinatorRequest(key=self.txn, key_type=1)
            return not self.client.ask(find, 3, FindCoordinatorResponse).error_code

        eventually(coordinator_is_there, 30)
        eventually(lambda: not any(self._end(number, 0).error_code for number in (0, 1)), 30)
        # Until the coordinator has loaded its transactional ids.
        eventually(lambda: self._state() is not None, 30)
        eventually(
            lambda: not self.client.ask(self.init(f"{self.txn}-first"), 5, InitProducerIdResponse).error_code, 30
        )

    def note(self, question: str, answer: Response) -> None:
        """Record a response without texts and times."""
        if isinstance(answer, ProduceResponse):
            for topic in answer.responses:
                for one in topic.partition_responses:
                    one.error_message = None
                    one.log_append_time_ms = min(one.log_append_time_ms, 0)
        elif isinstance(answer, DescribeTransactionsResponse):
            for state in answer.transaction_states:
                state.transaction_start_time_ms = min(state.transaction_start_time_ms, 0)
        elif isinstance(answer, DescribeProducersResponse):
            for described in answer.topics:
                for found in described.partitions:
                    found.error_message = None
                    for producer in found.active_producers:
                        producer.last_timestamp = min(producer.last_timestamp, 0)
                        producer.coordinator_epoch = min(producer.coordinator_epoch, 0)
        _sort_partitions(answer)
        super().note(question, answer)

    # --- requests

    def init(
        self, txn: str | None = None, timeout_ms: int = 60_000, current: Identity = NOBODY
    ) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.txn if txn is None else txn,
            transaction_timeout_ms=timeout_ms,
            producer_id=current.id,
            producer_epoch=current.epoch,
        )

    def started(self, txn: str | None = None, current: Identity = NOBODY) -> Identity:
        """Return a producer that is ready for its first transaction."""
        found: list[InitProducerIdResponse] = []

        def is_ready() -> bool:
            answer = self.client.ask(self.init(txn, current=current), 5, InitProducerIdResponse)
            assert answer.error_code in (0, CONCURRENT_TRANSACTIONS)
            found[:] = [answer]
            return not answer.error_code

        eventually(is_ready, 30)
        return Identity(found[0].producer_id, found[0].producer_epoch)

    def add(
        self, who: Identity, partitions: Sequence[int] = (0,), topic: str | None = None, txn: str | None = None
    ) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.txn if txn is None else txn,
            v3_and_below_producer_id=who.id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic or self.topic, partitions=partitions)
            ],
        )

    def add_as_broker(self, who: Identity, partitions: Sequence[int], *, verify: bool) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                    transactional_id=self.txn,
                    producer_id=who.id,
                    producer_epoch=who.epoch,
                    verify_only=verify,
                    topics=self.add(who, partitions).v3_and_below_topics,
                )
            ]
        )

    def add_offsets(self, who: Identity, txn: str | None = None) -> AddOffsetsToTxnRequest:
        return AddOffsetsToTxnRequest(
            transactional_id=self.txn if txn is None else txn,
            producer_id=who.id,
            producer_epoch=who.epoch,
            group_id=self.group,
        )

    def commit_offset(
        self, who: Identity, offset: int, generation: int = -1, member: str = "", txn: str | None = None
    ) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self.txn if txn is None else txn,
            group_id=self.group,
            producer_id=who.id,
            producer_epoch=who.epoch,
            generation_id=generation,
            member_id=member,
            topics=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
                    name=self.topic,
                    partitions=[
                        TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                            partition_index=number, committed_offset=offset, committed_metadata="note"
                        )
                        for number in (0, 7)
                    ],
                )
            ],
        )

    def produce(
        self,
        version: int,
        who: Identity,
        sequence: int,
        value: bytes,
        partition: int = 0,
        txn: str | None = "",
        transactional: bool = True,
    ) -> ProduceRequest:
        builder = MemoryRecordsBuilder(
            producer_id=who.id, producer_epoch=who.epoch, base_sequence=sequence, is_transactional=transactional
        )
        builder.append(int(time.time() * 1000), None, value)
        topic = ProduceRequest.TopicProduceData(
            partition_data=[ProduceRequest.PartitionProduceData(index=partition, records=builder.build())]
        )
        if version >= 13:
            topic.topic_id = self.topic_id
        else:
            topic.name = self.topic
        return ProduceRequest(
            transactional_id=self.txn if txn == "" else txn, acks=-1, timeout_ms=30_000, topic_data=[topic]
        )

    def end(self, who: Identity, committed: bool, txn: str | None = None) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.txn if txn is None else txn,
            producer_id=who.id,
            producer_epoch=who.epoch,
            committed=committed,
        )

    # --- questions about the state

    def _state(self) -> str | None:
        describe = DescribeTransactionsRequest(transactional_ids=[self.txn])
        (state,) = self.client.ask(describe, 0, DescribeTransactionsResponse).transaction_states
        return None if state.error_code in (14, 15, 16) else state.transaction_state

    def await_state(self, state: str) -> None:
        """Wait until the transactional id is in a state, and record its description."""
        eventually(lambda: self._state() == state, 30)
        self.ask("describe", DescribeTransactionsRequest(transactional_ids=[self.txn]), 0)

    def _end(self, partition: int, level: int) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
        one = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.topic, partitions=[one])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic])
        return self.client.ask(request, 7, ListOffsetsResponse).topics[0].partitions[0]

    def read(self, partition: int = 0) -> None:
        """Record what read_committed and read_uncommitted show of a partition."""
        ends = [self._end(partition, level).offset for level in (0, 1)]
        asked = FetchRequest.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
        request_to_read = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=1,
            topics=[FetchRequest.FetchTopic(topic=self.topic, partitions=[asked])],
        )
        found = self.client.ask(request_to_read, 12, FetchResponse).responses[0].partitions[0]
        batches = [
            f"{'marker' if batch.is_control_batch else 'batch'} {batch.base_offset} epoch {batch.producer_epoch} "
            f"sequence {batch.base_sequence}"
            for batch in MemoryRecords(bytes(found.records or b"")).batches()
        ]
        aborted = [txn.first_offset for txn in found.aborted_transactions or ()]
        self.said.append(
            f"partition {partition}: end {ends[0]}, stable {ends[1]} = {found.last_stable_offset}, "
            f"aborted from {aborted}, {batches}"
        )

    # --- rounds

    def coordinators(self) -> None:
        find = FindCoordinatorRequest
        self.ask_all("find", lambda _: find(key=self.txn, key_type=1), (1, 2, 3))
        self.ask_all("find", lambda _: find(coordinator_keys=[self.txn], key_type=1), (4, 5, 6))
        for version in (3, 4):
            answer = self.client.ask(
                ApiVersionsRequest(client_software_name="a", client_software_version="1"), version, ApiVersionsResponse
            )
            supported = [
                (one.min_version, one.max_version)
                for one in answer.supported_features
                if one.name == "transaction.version"
            ]
            finalized = [
                (one.min_version_level, one.max_version_level)
                for one in answer.finalized_features
                if one.name == "transaction.version"
            ]
            self.said.append(f"transaction.version v{version}: {supported}, {finalized}")

    def producers(self) -> None:
        """Get ids and epochs."""
        ask = self.ask
        for version in range(6):
            ask("init", self.init(), version)
        me = self.started()
        ask("continue", self.init(current=me), 5)
        ask("continue, a retry", self.init(current=me), 5)
        ask("continue in an old epoch", self.init(current=me.bumped(-1)), 5)
        ask("continue in an old epoch", self.init(current=me.bumped(-1)), 3)
        ask("continue in a later epoch", self.init(current=me.bumped(9)), 5)
        ask("continue as another producer", self.init(current=Identity(me.id + 1_000_000, me.epoch)), 5)
        ask("an epoch is missing", self.init(current=Identity(me.id, -1)), 5)
        ask("no timeout", self.init(timeout_ms=0), 5)
        ask("a negative timeout", self.init(timeout_ms=-1), 5)
        ask("too long a timeout", self.init(timeout_ms=900_001), 5)
        ask("the longest timeout", self.init(f"{self.txn}-patient", 900_000), 5)
        ask("no name", self.init(""), 5)
        ask("continue a new one", self.init(f"{self.txn}-new", current=me), 5)
        describe = DescribeTransactionsRequest(transactional_ids=[self.txn, f"{self.txn}-nowhere", ""])
        ask("describe", describe, 0)

    def strangers(self) -> None:
        """Send requests of producers that do not exist, or no longer."""
        ask, ask_all = self.ask, self.ask_all
        nowhere, somebody = f"{self.txn}-nowhere", Identity(987654, 3)
        ask_all("add", lambda _: self.add(somebody, txn=nowhere), range(4))
        ask_all("add without a name", lambda _: self.add(somebody, txn=""), (0, 3))
        ask_all("add offsets", lambda _: self.add_offsets(somebody, nowhere), range(5))
        ask_all("end", lambda _: self.end(somebody, COMMIT, nowhere), range(6))
        ask_all("end without a name", lambda _: self.end(somebody, COMMIT, ""), (0, 5))
        ask_all("commit offsets", lambda _: self.commit_offset(somebody, 5, txn=nowhere), range(6))
        for version in range(3, 14):
            ask("produce", self.produce(version, somebody, 0, b"x", txn=nowhere), version)
        ask("produce without a transactional id", self.produce(11, somebody, 0, b"x", txn=None), 11)
        self.started()
        me = self.started()  # the second epoch, so that there is an older one
        for who, what in (
            (Identity(me.id + 1_000_000, me.epoch), "another id"),
            (me.bumped(-1), "an old epoch"),
            (me.bumped(), "a later epoch"),
        ):
            for version in range(4):
                ask(f"add with {what}", self.add(who), version)
            for version in range(5):
                ask(f"add offsets with {what}", self.add_offsets(who), version)
            for version in range(6):
                ask(f"end with {what}", self.end(who, ABORT), version)
            for version in range(6):
                ask(f"commit offsets with {what}", self.commit_offset(who, 5), version)
            for version in (9, 11, 13):
                ask(f"produce with {what}", self.produce(version, who, 0, b"x"), version)
        ask("add to an unknown topic", self.add(me, topic="no-such-topic"), 3)
        ask("add an unknown partition too", self.add(me, (0, 7)), 3)
        self.await_state("Empty")

    def first_generation(self) -> None:
        """Run transactions whose partitions the producer adds."""
        ask = self.ask
        me = self.started()
        ask("commit of nothing", self.end(me, COMMIT), 4)
        ask("abort of nothing", self.end(me, ABORT), 4)
        for version in (3, 9, 10, 11):
            ask("produce before adding", self.produce(version, me, 0, b"too early"), version)
        ask("add", self.add(me), 3)
        ask("add again", self.add(me), 3)
        self.await_state("Ongoing")
        ask("produce", self.produce(11, me, 0, b"a"), 11)
        ask("produce again", self.produce(11, me, 0, b"a"), 11)
        ask("produce", self.produce(9, me, 1, b"b"), 9)
        ask("produce with a gap", self.produce(11, me, 7, b"c"), 11)
        ask("produce elsewhere", self.produce(11, me, 0, b"d", partition=1), 11)
        ask("produce outside of the transaction", self.produce(11, me, 2, b"e", txn=None, transactional=False), 11)
        ask("add another partition", self.add(me, (0, 1)), 3)
        ask("produce with a gap at the start", self.produce(11, me, 3, b"d", partition=1), 11)
        self.read()
        ask("describe producers", self.describe_producers(), 0)
        ask("commit", self.end(me, COMMIT), 4)
        self.await_state("CompleteCommit")
        self.read()
        self.read(1)
        ask("commit again", self.end(me, COMMIT), 4)
        ask("abort of a committed one", self.end(me, ABORT), 4)
        ask("produce when it is over", self.produce(11, me, 2, b"late"), 11)
        ask("add", self.add(me), 0)
        ask("produce", self.produce(11, me, 2, b"f"), 11)
        ask("abort", self.end(me, ABORT), 0)
        self.await_state("CompleteAbort")
        ask("abort again", self.end(me, ABORT), 4)
        ask("commit of an aborted one", self.end(me, COMMIT), 4)
        self.read()
        ask("add", self.add(me), 3)
        ask("produce", self.produce(11, me, 3, b"g"), 11)
        ask("another producer begins", self.init(), 5)
        self.await_state("CompleteAbort")
        self.read()
        ask("produce of the fenced producer", self.produce(11, me, 4, b"zombie"), 11)
        ask("add of the fenced producer", self.add(me), 1)
        ask("add of the fenced producer", self.add(me), 3)
        ask("commit of the fenced producer", self.end(me, COMMIT), 1)
        ask("commit of the fenced producer", self.end(me, COMMIT), 4)
        ask("describe producers", self.describe_producers(), 0)
        other = self.started()
        self.said.append(f"the epoch has grown by {other.epoch - me.epoch}")

    def second_generation(self) -> None:
        """Run transactions whose partitions the leaders add, each in an epoch of its own."""
        ask = self.ask
        me = self.started()
        ask("commit of nothing", self.end(me, COMMIT), 5)
        ask("abort of nothing", self.end(me, ABORT), 5)
        self.await_state("CompleteAbort")
        ask("abort of nothing, a retry", self.end(me, ABORT), 5)
        me = me.bumped()
        ask("produce in the old epoch", self.produce(12, me.bumped(-1), 0, b"old"), 12)
        ask("produce", self.produce(12, me, 0, b"a"), 12)
        ask("produce", self.produce(13, me, 1, b"b"), 13)
        ask("produce elsewhere", self.produce(13, me, 0, b"c", partition=1), 13)
        self.await_state("Ongoing")
        self.read()
        ask("commit", self.end(me, COMMIT), 5)
        self.await_state("CompleteCommit")
        ask("commit, a retry", self.end(me, COMMIT), 5)
        ask("abort, as if it were a retry", self.end(me, ABORT), 5)
        ask("produce when it is over", self.produce(13, me, 2, b"late"), 13)
        self.read()
        self.read(1)
        me = me.bumped()
        ask("commit of nothing", self.end(me, COMMIT), 5)
        ask("produce, but not from the start", self.produce(13, me, 3, b"d"), 13)
        ask("produce", self.produce(13, me, 0, b"d"), 13)
        ask("produce in the old epoch", self.produce(13, me.bumped(-1), 1, b"late"), 13)
        ask("abort", self.end(me, ABORT), 5)
        self.await_state("CompleteAbort")
        ask("abort, a retry", self.end(me, ABORT), 5)
        ask("commit, as if it were a retry", self.end(me, COMMIT), 5)
        self.read()
        me = me.bumped()
        ask("produce", self.produce(13, me, 0, b"e"), 13)
        ask("another producer begins", self.init(), 5)
        self.await_state("CompleteAbort")
        ask("produce of the fenced producer", self.produce(13, me, 1, b"zombie"), 13)
        ask("commit of the fenced producer", self.end(me, COMMIT), 5)
        ask("abort of the fenced producer", self.end(me, ABORT), 5)
        self.read()
        other = self.started()
        self.said.append(f"the epoch has grown by {other.epoch - me.epoch}")
        ask("describe producers", self.describe_producers(), 0)

    def continued_producers(self) -> None:
        """Request the next epoch (KIP-360) while a transaction is open.

        Any epoch of its producer aborts the transaction. Only the next request compares the epochs.
        """
        ask = self.ask
        self.started()
        me = self.started()  # the second epoch, so that there is an older one
        for begin, abort_version in ((self._begin_first, 4), (self._begin_second, 5)):
            for who, what in (
                (Identity(me.id + 1_000_000, me.epoch), "another producer"),
                (Identity(me.id, -1), "an epoch that is missing"),
            ):
                begin(me)
                ask(f"continue with {what}", self.init(current=who), 5)
                self.await_state("Ongoing")
                ask("abort", self.end(me, ABORT), abort_version)
                self.await_state("CompleteAbort")
                me = self.started()
            for by, what in ((0, "its epoch"), (-1, "an old epoch"), (9, "a later epoch")):
                begin(me)
                ask(f"continue with {what}", self.init(current=me.bumped(by)), 5)
                self.await_state("CompleteAbort")
                ask(f"continue with {what} again", self.init(current=me.bumped(by)), 5)
                self.await_state("Empty" if by == 0 else "CompleteAbort")
                self.read()
                other = self.started()
                self.said.append(f"the epoch has grown by {other.epoch - me.epoch}")
                me = other

    def _begin_first(self, me: Identity) -> None:
        self.ask("add", self.add(me), 3)
        self.ask("produce", self.produce(11, me, 0, b"a"), 11)

    def _begin_second(self, me: Identity) -> None:
        self.ask("produce", self.produce(13, me, 0, b"a"), 13)

    def both_generations(self) -> None:
        """Change the generation between and within transactions."""
        ask = self.ask
        me = self.started()
        ask("add", self.add(me), 3)
        ask("produce", self.produce(11, me, 0, b"a"), 11)
        ask("commit in the second generation", self.end(me, COMMIT), 5)
        self.await_state("CompleteCommit")
        me = me.bumped()
        ask("produce", self.produce(13, me, 0, b"b"), 13)
        ask("abort in the first generation", self.end(me, ABORT), 4)
        self.await_state("CompleteAbort")
        ask("produce", self.produce(13, me, 1, b"c"), 13)
        ask("commit in the second generation", self.end(me, COMMIT), 5)
        self.await_state("CompleteCommit")
        self.read()

    def offsets(self) -> None:
        """Commit offsets with transactions."""
        ask, fetch = self.ask, self.fetch
        me = self.started()
        ask("commit offsets before adding", self.commit_offset(me, 5), 3)
        ask("commit offsets before adding", self.commit_offset(me, 5), 4)
        ask("fetch", fetch(9, stable=True), 9)
        ask("add offsets", self.add_offsets(me), 4)
        for version in range(5):
            ask("commit offsets", self.commit_offset(me, 5 + version), version)
        ask("fetch", fetch(9), 9)
        ask("fetch stable", fetch(9, stable=True), 9)
        ask("fetch all stable", fetch(9, everything=True, stable=True), 9)
        ask("commit", self.end(me, COMMIT), 4)
        self.await_state("CompleteCommit")
        ask("fetch stable", fetch(9, stable=True), 9)
        ask("commit offsets", self.commit_offset(me, 20), 5)
        ask("fetch stable", fetch(7, stable=True), 7)
        ask("fetch stable", fetch(10, stable=True), 10)
        ask("fetch all stable", fetch(9, everything=True, stable=True), 9)
        ask("abort", self.end(me, ABORT), 5)
        self.await_state("CompleteAbort")
        ask("fetch stable", fetch(9, stable=True), 9)
        me = me.bumped()
        ask("commit offsets", self.commit_offset(me, 30), 5)
        ask("commit without a transaction", self.commit(9, offset=40), 9)
        ask("commit", self.end(me, COMMIT), 5)
        self.await_state("CompleteCommit")
        ask("fetch stable", fetch(9, stable=True), 9)
        me = me.bumped()
        ask("commit of a generation", self.commit_offset(me, 50, generation=3, member="nobody"), 5)
        ask("commit of an unknown member", self.commit_offset(me, 50, member="nobody"), 3)
        member = ask("join", self.join(), 3).member_id
        ask("sync", self.sync(1, member, [(member, b"part")]), 3)
        ask("commit of no member", self.commit_offset(me, 60), 5)
        ask("commit of another member", self.commit_offset(me, 61, generation=1, member="nobody"), 5)
        ask("commit of an old generation", self.commit_offset(me, 62, generation=0, member=member), 5)
        ask("commit of a member", self.commit_offset(me, 63, generation=1, member=member), 5)
        ask("commit", self.end(me, COMMIT), 5)
        self.await_state("CompleteCommit")
        ask("fetch stable", fetch(9, stable=True), 9)

    def administrators(self) -> None:
        """List and describe transactions, and end one without its coordinator."""
        ask = self.ask
        me = self.started()
        ask("produce", self.produce(13, me, 0, b"a"), 13)
        self.await_state("Ongoing")
        for version in range(3):
            self.list_transactions(version)
        self.list_transactions(2, state_filters=["Ongoing", "NoSuchState"])
        self.list_transactions(2, state_filters=["Empty"])
        self.list_transactions(2, producer_id_filters=[me.id])
        self.list_transactions(2, producer_id_filters=[me.id + 1_000_000])
        self.list_transactions(2, duration_filter=600_000)
        self.list_transactions(2, transactional_id_pattern=f"{self.txn}.*")
        self.list_transactions(2, transactional_id_pattern="nothing")
        self.list_transactions(2, transactional_id_pattern="(")
        ask("verify as a broker", self.add_as_broker(me, (0,), verify=True), 4)
        ask("verify another partition", self.add_as_broker(me, (0, 1), verify=True), 5)
        ask("verify an old epoch", self.add_as_broker(me.bumped(-1), (0,), verify=True), 5)
        ask("add as a broker", self.add_as_broker(me, (1,), verify=False), 5)
        ask("end by hand", self.marker(me, 0), 1)
        self.read()
        ask("end by hand again", self.marker(me, 0), 1)
        ask("end of an old epoch by hand", self.marker(me.bumped(-1), 0), 1)
        ask("end where there is nothing", self.marker(me, 7), 1)
        ask("commit", self.end(me, COMMIT), 5)
        self.await_state("CompleteCommit")
        self.read()

    def describe_producers(self) -> DescribeProducersRequest:
        topic = DescribeProducersRequest.TopicRequest(name=self.topic, partition_indexes=[0])
        return DescribeProducersRequest(topics=[topic])

    def list_transactions(self, version: int, **filters: Any) -> None:
        answer = self.client.ask(ListTransactionsRequest(**filters), version, ListTransactionsResponse)
        ours = [state for state in answer.transaction_states if state.transactional_id.startswith(self.txn)]
        answer.transaction_states = sorted(ours, key=lambda state: state.transactional_id)
        self.note(f"list v{version} {sorted(filters)}", answer)

    def marker(self, who: Identity, partition: int) -> WriteTxnMarkersRequest:
        return WriteTxnMarkersRequest(
            markers=[
                WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=who.id,
                    producer_epoch=who.epoch,
                    transaction_result=ABORT,
                    topics=[
                        WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=self.topic, partition_indexes=[partition])
                    ],
                )
            ]
        )


def _sort_partitions(message: Message) -> None:
    """Sort all lists of partitions, whose order has no meaning."""
    for name in type(message).__slots__:
        value = getattr(message, name)
        if isinstance(value, list):
            for one in value:
                if isinstance(one, Message):
                    _sort_partitions(one)
            if value and hasattr(value[0], "partition_index"):
                value.sort(key=lambda one: one.partition_index)
            elif name == "partitions" and all(isinstance(one, int) for one in value):
                value.sort()


ROUNDS = (
    "coordinators",
    "producers",
    "strangers",
    "first_generation",
    "second_generation",
    "continued_producers",
    "both_generations",
    "offsets",
    "administrators",
)


def converse(kafka: AnyKafka, name: str) -> list[str]:
    """Run one conversation and return its requests and responses."""
    conversation = TransactionConversation(kafka)
    try:
        getattr(conversation, name)()
    finally:
        conversation.close()
    return conversation.said


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    with KafkaCluster(brokers=1) as kafka:
        answers = {name: converse(kafka, name) for name in ROUNDS}
    ANSWERS.write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
