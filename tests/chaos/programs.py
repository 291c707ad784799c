"""Small programs that use a client and are interrupted, forked or left. test_processes.py runs them by name.

``python -m tests.chaos.programs <name> <bootstrap servers> <topic>`` prints ``ready`` once it is in the state that its
name describes.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from pykclient import KafkaConsumer, KafkaProducer
from pykclient.errors import KafkaError

#: A program, called with the bootstrap servers and a topic.
Program = Callable[[str, str], None]


def ready() -> None:
    print("ready", flush=True)


def ready_soon(after_s: float = 0.3) -> None:
    """Print ``ready`` from another thread, as this one is about to block."""
    timer = threading.Timer(after_s, ready)
    timer.daemon = True
    timer.start()


def producer(servers: str, **settings: Any) -> KafkaProducer[bytes, bytes]:
    return KafkaProducer(bootstrap_servers=servers, **settings)


def consumer(servers: str, topic: str, **settings: Any) -> KafkaConsumer[bytes, bytes]:
    return KafkaConsumer(topic, bootstrap_servers=servers, group_id=f"group-{topic}", **settings)


# --- Ctrl-C while waiting ---------------------------------------------------------------------------------------------


def send_waits_for_metadata(servers: str, topic: str) -> None:
    with producer(servers) as p:
        ready_soon()
        p.send(topic, b"x")


def send_waits_for_memory(servers: str, topic: str) -> None:
    with producer(servers, buffer_memory=20_000, batch_size=10_000, linger_ms=60_000) as p:
        p.partitions_for(topic)
        stop_answers(servers)
        ready_soon()
        while True:
            p.send(topic, b"x" * 9000)


def flush_waits(servers: str, topic: str) -> None:
    with producer(servers, linger_ms=60_000) as p:
        p.partitions_for(topic)
        stop_answers(servers)
        p.send(topic, b"x")
        ready_soon()
        p.flush()


def future_waits(servers: str, topic: str) -> None:
    with producer(servers, linger_ms=600_000, delivery_timeout_ms=1_000_000) as p:
        future = p.send(topic, b"x")
        ready_soon()
        future.get()


def close_waits(servers: str, topic: str) -> None:
    p = producer(servers)
    p.partitions_for(topic)
    stop_answers(servers)
    p.send(topic, b"x")
    ready_soon()
    p.close()


def poll_waits(servers: str, topic: str) -> None:
    with consumer(servers, topic) as c:
        while not c.assignment():
            c.poll(timeout_ms=100)
        ready_soon()
        c.poll(timeout_ms=60_000)


def iteration_waits(servers: str, topic: str) -> None:
    with consumer(servers, topic) as c:
        ready_soon(1.0)
        for _ in c:
            pass


def poll_waits_without_brokers(servers: str, topic: str) -> None:
    with consumer(servers, topic) as c:
        ready_soon()
        c.poll(timeout_ms=60_000)


def commit_waits(servers: str, topic: str) -> None:
    with consumer(servers, topic) as c:
        while not c.assignment():
            c.poll(timeout_ms=100)
        stop_answers(servers)
        ready_soon()
        c.commit(timeout_ms=60_000)


def consumer_close_waits(servers: str, topic: str) -> None:
    c = consumer(servers, topic)
    while not c.assignment():
        c.poll(timeout_ms=100)
    c.poll(timeout_ms=100)
    stop_answers(servers)
    ready_soon()
    c.close()


def stop_answers(servers: str) -> None:
    """Wait until the test has put the proxy into a black hole."""
    print("blackhole", flush=True)
    assert sys.stdin.readline() == "done\n"


# --- ends of programs -------------------------------------------------------------------------------------------------


def exit_with_unflushed_records(servers: str, topic: str) -> None:
    """Leave records in the buffer; with a healthy cluster they are sent at exit."""
    p = producer(servers, linger_ms=60_000)
    for number in range(100):
        p.send(topic, b"%d" % number)
    globals()["kept"] = p
    ready()


def exit_with_unflushed_records_and_no_cluster(servers: str, topic: str) -> None:
    p = producer(servers, linger_ms=60_000)
    p.partitions_for(topic)
    stop_answers(servers)
    p.send(topic, b"lost")
    globals()["kept"] = p
    ready()


def exit_with_open_consumer(servers: str, topic: str) -> None:
    c = consumer(servers, topic)
    while not c.assignment():
        c.poll(timeout_ms=100)
    globals()["kept"] = c
    ready()


def exit_with_open_consumer_and_no_cluster(servers: str, topic: str) -> None:
    c = consumer(servers, topic)
    while not c.assignment():
        c.poll(timeout_ms=100)
    stop_answers(servers)
    globals()["kept"] = c
    ready()


def exit_by_an_error(servers: str, topic: str) -> None:
    p, c = producer(servers), consumer(servers, topic)
    c.poll(timeout_ms=100)
    p.send(topic, b"x")
    globals()["kept"] = (p, c)
    ready()
    raise SystemExit(3)


def exit_of_main_while_a_thread_sends(servers: str, topic: str) -> None:
    p = producer(servers)

    def send() -> None:
        with contextlib.suppress(KafkaError):  # closed at exit
            while True:
                p.send(topic, b"x")

    p.send(topic, b"x").get(20)
    threading.Thread(target=send, daemon=True).start()
    ready()


def wait_for_a_signal(servers: str, topic: str) -> None:
    p, c = producer(servers), consumer(servers, topic)
    c.poll(timeout_ms=100)
    p.send(topic, b"x").get(20)
    ready()
    threading.Event().wait()


# --- forks ------------------------------------------------------------------------------------------------------------


def refusals(calls: dict[str, Callable[[], object]]) -> list[str]:
    """Return the error of each call."""
    raised = []
    for name, call in calls.items():
        try:
            call()
        except KafkaError as error:
            raised.append(f"{name}: {type(error).__name__}: {error}")
        else:
            raised.append(f"{name}: nothing")
    return raised


def calls_of(p: KafkaProducer[bytes, bytes], c: KafkaConsumer[bytes, bytes], topic: str) -> dict[str, Any]:
    return {
        "send": lambda: p.send(topic, b"child"),
        "flush": lambda: p.flush(1),
        "partitions_for": lambda: p.partitions_for(topic),
        "metrics": p.metrics,
        "poll": lambda: c.poll(timeout_ms=100),
        "next": lambda: next(c),
        "iter": lambda: next(iter(c)),
        "commit": c.commit,
        "subscription": c.subscription,
    }


def fork_in_full_swing(servers: str, topic: str) -> None:
    """Fork while other threads send, so that locks are sometimes held at that moment."""
    p, c = producer(servers, linger_ms=1), consumer(servers, topic, auto_offset_reset="earliest")
    p.send(topic, b"first").get(20)
    going = threading.Event()
    stop = threading.Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        while not stop.is_set():
            p.send(topic, b"parent")
            sent += 1
            if sent == 200:
                going.set()

    sender = threading.Thread(target=send)
    sender.start()
    read = 0
    while not c.assignment():
        read += sum(map(len, c.poll(timeout_ms=100).values()))
    going.wait(20)
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            raised = refusals(calls_of(p, c, topic))
            p.close()
            c.close()
            bad = [line for line in raised if "UseAfterForkError" not in line]
            for line in bad:
                print("child:", line, flush=True)
            del p, c
            sys.exit(1 if bad else 0)  # runs the atexit handlers
        _, status = os.waitpid(pid, 0)
        print("status", os.waitstatus_to_exitcode(status), flush=True)
    stop.set()
    sender.join()
    p.send(topic, b"last").get(20)
    while read < sent + 2:
        read += sum(map(len, c.poll(timeout_ms=1000).values()))
    p.close()
    c.close()
    ready()


def fork_and_own_clients(servers: str, topic: str) -> None:
    """Fork, and let the child create its own clients."""
    p = producer(servers)
    p.send(topic, b"parent").get(20)
    pid = os.fork()
    if pid == 0:
        with producer(servers) as own:
            own.send(topic, b"child").get(20)
        sys.exit(0)
    print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    with p:
        assert p.send(topic, b"parent again").get(20).offset == 2
    ready()


_inherited: list[Any] = []


def _in_worker(topic: str) -> list[str]:
    p, c = _inherited
    return refusals(calls_of(p, c, topic))


def multiprocessing_pool(servers: str, topic: str) -> None:
    import multiprocessing

    p, c = producer(servers), consumer(servers, topic)
    p.send(topic, b"parent").get(20)
    c.poll(timeout_ms=1000)
    _inherited.extend((p, c))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for raised in pool.map(_in_worker, [topic] * 4):
            for line in raised:
                if "UseAfterForkError" not in line:
                    print("child:", line, flush=True)
    assert p.send(topic, b"parent").get(20).offset == 1
    p.close()
    c.close()
    ready()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:4])
