"""Run the tests in several processes, forked from the one that has collected them.

    python -m pytest tests --workers 3

So TensorFlow is imported and tests are collected once, which takes longer than most tests. No
thread runs when workers are forked, so that each is as good as a process of its own. Tests that
start ranks take turns, so the first worker begins with them. Each other worker begins with a
stretch of the rest, because tests of a folder share what they have computed, and goes on with what
is left of the others' stretches.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait

import pytest

# The most tests of a file that a worker takes at once: they share what the file's fixtures make.
_TOGETHER = 20
_NUMBER_BYTES = 4


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "number of processes that run the tests; 1, the default, forks none"
    parser.addoption("--workers", type=int, default=1, help=help_)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Take pytest's place where there are several workers, and tests to run."""
    count = session.config.option.workers
    if count < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        rule = "No thread runs when workers are forked, so importing test modules starts none"
        remedy = "build graphs in tests, as TensorFlow computes their constants in a thread"
        raise pytest.UsageError(f"{rule}. Got {threads - 1} beside the main thread; {remedy}.")
    groups = _groups(session.items)
    queues = _queues(groups, count)
    session.config._tmp_path_factory.getbasetemp()  # the same for all
    pipes: dict[Connection, int] = {}
    for number in range(count):
        receiver, sender = Pipe(duplex=False)
        pid = os.fork()
        if pid == 0:
            _work(session, groups, _in_turn(queues, number), sender)
        sender.close()
        pipes[receiver] = pid
    _report(session, pipes, queues)
    return True


def _groups(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """Tests of one file, some at a time; those that start ranks apart from the others."""
    found: list[list[pytest.Item]] = []
    for _, alike in itertools.groupby(items, lambda item: (_starts_ranks(item), item.path)):
        of_file = list(alike)
        found += [of_file[n : n + _TOGETHER] for n in range(0, len(of_file), _TOGETHER)]
    return found


def _starts_ranks(item: pytest.Item) -> bool:
    return item.get_closest_marker("mpi") is not None


def _queues(groups: list[list[pytest.Item]], workers: int) -> list[int]:
    """For each worker a pipe, from which any reads the number of its next group."""
    numbers = range(len(groups))
    ranks = [n for n in numbers if _starts_ranks(groups[n][0])]
    rest = [n for n in numbers if not _starts_ranks(groups[n][0])]
    length = -(-len(rest) // (workers - 1))
    queues = []
    for stretch in (ranks, *(rest[k * length : (k + 1) * length] for k in range(workers - 1))):
        receiver, sender = os.pipe()
        os.write(sender, b"".join(n.to_bytes(_NUMBER_BYTES, "big") for n in stretch))
        os.close(sender)
        queues.append(receiver)
    return queues


def _in_turn(queues: list[int], worker: int) -> list[int]:
    """The worker's own queue, those of the others, and at last that of the tests with ranks."""
    return [queues[n] for n in sorted(range(len(queues)), key=lambda n: (n != worker, n == 0))]


def _taken(groups: list[list[pytest.Item]], queues: list[int]) -> Iterator[pytest.Item | None]:
    """The tests that this worker takes; at the end None."""
    for queue in queues:
        while number := os.read(queue, _NUMBER_BYTES):
            yield from groups[int.from_bytes(number, "big")]
    yield None


class _Sender:
    """Tells the first process of the results."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send_bytes(json.dumps(data).encode())


def _work(
    session: pytest.Session,
    groups: list[list[pytest.Item]],
    queues: list[int],
    connection: Connection,
) -> None:
    """Run tests until none is left, and end the process."""
    status = 1
    try:
        plugins = session.config.pluginmanager
        # The files with what tests write are a worker's own, and the first process alone prints.
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        capture.start_global_capturing()
        capture.suspend_global_capture()
        plugins.register(_Sender(session.config, connection))
        for item, following in itertools.pairwise(_taken(groups, queues)):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        status = 0
    except KeyboardInterrupt:
        pass  # The first process is interrupted, too, and says so.
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stderr.flush()
        os._exit(status)


def _report(session: pytest.Session, pipes: dict[Connection, int], queues: list[int]) -> None:
    """Pass on the workers' results. A test that has none is a failure."""
    hook = session.config.hook
    left = {item.nodeid: item for item in session.items}
    statuses = []
    while pipes:
        ready = wait(list(pipes))
        for connection in [each for each in pipes if each in ready]:
            try:
                data = json.loads(connection.recv_bytes())
            except EOFError:
                _, status = os.waitpid(pipes.pop(connection), 0)
                statuses.append(os.waitstatus_to_exitcode(status))
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                del left[report.nodeid]
        if session.shouldfail or session.shouldstop:
            for queue in queues:
                os.read(queue, 1 << 20)  # Workers find no more groups.
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    for item in left.values():
        text = f"Every test has to end. Got no result; the workers ended with status {statuses}."
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        hook.pytest_runtest_logreport(report=report)
