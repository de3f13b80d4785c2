"""Simulated machines: network, host name, ``/dev/shm``, IPC and process numbers of their own.

A *switch* is made first. It has such namespaces, too, and the bridge between the machines, which
are made inside it. ``mpirun`` runs on the first machine. This one has the switch's process numbers,
so that it can reach the other ones as if by ssh. All of them share the file system.

The first process of the switch and of each machine reads a pipe that only this process writes. It
ends when this process ends, in whatever way, and the system then kills all processes under it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tensoropt.elastic.launcher import mpirun
from tests.machines.jobs import Job
from tests.machines.links import Link
from tests.machines.processes import Process, below, enter, processes_of

__all__ = ["Machine", "Machines", "MachinesError", "machines"]

_NAMESPACES = ("--net", "--uts", "--mount", "--ipc")
_PROCESSES = ("--pid", "--fork", "--mount-proc")
_NETWORK = "10.77.0"
_SWITCH = f"{_NETWORK}.254"
_BRIDGE, _DEVICE = "bridge", "eth0"
_MAKE_BRIDGE = f"""
ip link set lo up
ip link add {_BRIDGE} type bridge
ip addr add {_SWITCH}/24 dev {_BRIDGE}
ip link set {_BRIDGE} up
"""
_SHARED_MEMORY_BYTES = 2 << 30
# Orphans vanish when they end: their parent ignores their ends. A shell other than bash would not.
_WAIT_FOR_THE_END = "echo ready; trap '' CHLD; exec cat"


class MachinesError(RuntimeError):
    """Machines cannot be made here."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A simulated machine, or the switch.

    Attributes:
        name: its host name.
        address: its address on the network between machines.
        init: its first process, by its number outside.
        cores: the cores that its processes may use.
    """

    name: str
    address: str
    init: int
    cores: frozenset[int]


@dataclass(slots=True)
class Machines:
    """Machines that run; see `machines`.

    Attributes:
        folder: a folder of this instance, which is removed at the end.
        has_users: whether the machines have a namespace of users.
        switch: where the machines' cables end.
        nodes: the machines, m1, m2, ...; ``mpirun`` runs on m1.
        relays: for each machine the process that delays and loses its packets, if there is one.
        own: numbers of the processes that make up the machines.
    """

    folder: Path
    has_users: bool
    switch: Machine
    nodes: list[Machine] = field(default_factory=list)
    relays: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    own: frozenset[int] = frozenset()

    def run(self, machine: Machine, command: Sequence[str]) -> str:
        """Run a command on a machine's cores; return what it printed.

        Raises:
            MachinesError: if the command fails.
        """
        return _run(enter(machine.init, self.has_users, [*_on_cores(machine), *command]))

    def link(self, link: Link, only: Sequence[Machine] = ()) -> None:
        """Give all machines, or only some, a link in place of the former one.

        Raises:
            MachinesError: if the link has a delay or loss, and the cables are no relays.
        """
        for machine in only or self.nodes:
            self.run(machine, link.rate_command(_DEVICE))
            relay = self.relays.get(machine.name)
            if relay is not None:
                assert relay.stdin is not None
                relay.stdin.write(f"{link.delay_seconds} {link.loss}\n".encode())
                relay.stdin.flush()
            elif link.delay_seconds or link.loss:
                raise MachinesError("machines with relays alone get a delay or loss. Got none.")

    def down(self, machine: Machine) -> None:
        """Take a machine's network interface down."""
        self.run(machine, ["ip", "link", "set", _DEVICE, "down"])

    def up(self, machine: Machine) -> None:
        """Take a machine's network interface up again."""
        self.run(machine, ["ip", "link", "set", _DEVICE, "up"])

    def off(self, machine: Machine) -> None:
        """Unplug a machine from the bridge: packets to and from it are lost, and nobody is told, as
        if the machine were switched off."""
        self.run(self.switch, ["ip", "link", "set", _end(machine.name), "nomaster"])

    def on(self, machine: Machine) -> None:
        """Plug in a machine that was off."""
        self.run(self.switch, ["ip", "link", "set", _end(machine.name), "master", _BRIDGE])

    def stop(self, machine: Machine) -> None:
        """Stop all processes of a machine, but not of the first one."""
        assert machine != self.nodes[0], "mpirun runs there"
        for process in self.processes(machine):
            _signal(process.pid, signal.SIGSTOP)

    def go_on(self, machine: Machine) -> None:
        """Let the processes of a stopped machine go on."""
        for process in self.processes(machine):
            _signal(process.pid, signal.SIGCONT)

    def go_on_everywhere(self) -> None:
        """Let all stopped processes go on, those of a remote shell's commands, too, which stop with
        their command and are its parents outside of the machine."""
        for pid in below(self.switch.init):
            _signal(pid, signal.SIGCONT)

    def end(self, machine: Machine) -> None:
        """Kill all processes of a machine, which then is no more; but not of the first one."""
        assert machine != self.nodes[0], "mpirun runs there"
        _signal(machine.init, signal.SIGKILL)

    def processes(self, machine: Machine) -> list[Process]:
        """The processes of a machine that have not ended."""
        return [each for each in processes_of(machine.init) if each.pid not in self.own]

    def hide(self, folder: Path, machine: Machine) -> None:
        """Cover a folder by an empty one that this machine does not share."""
        self.run(machine, ["mount", "-t", "tmpfs", "tmpfs", str(folder)])

    @property
    def launcher_variables(self) -> dict[str, str]:
        """Variables with which MPICH's ``mpirun`` reaches the machines."""
        return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(self.folder / "rsh")}

    def mpirun(
        self,
        ranks: int,
        command: Sequence[str | Path],
        env: dict[str, str] | None = None,
        folder: Path | None = None,
        only: Sequence[Machine] = (),
        is_quiet: bool = True,
    ) -> Job:
        """Start ``mpirun`` on the first machine, with as many ranks on each.

        Args:
            ranks: number of ranks on each machine.
            command: the program of each rank.
            env: variables that are added to this process's environment.
            folder: the folder in which the ranks run, by default this process's.
            only: the machines to use, by default all.
            is_quiet: whether the output is kept for `Job.wait` instead of printed.
        """
        nodes = only or self.nodes
        hosts = ",".join(f"{machine.name}:{ranks}" for machine in nodes)
        launcher = [mpirun(), "-launcher", "ssh", "-launcher-exec", str(self.folder / "rsh")]
        launcher += ["-hosts", hosts, "-np", str(ranks * len(nodes))]
        launcher += ["-prepend-rank"] if is_quiet else []
        whole = [*launcher, *map(str, command)]
        return self.start(whole, env, folder, is_quiet)

    def start(
        self,
        command: Sequence[str],
        env: dict[str, str] | None = None,
        folder: Path | None = None,
        is_quiet: bool = True,
    ) -> Job:
        """Start a command on the first machine; the arguments are those of `mpirun`.

        MPICH's ``mpirun`` reaches the machines with the variables of `launcher_variables`.
        """
        inside = _in_folder(folder or Path.cwd(), command)
        first = self.nodes[0]
        on_first = enter(first.init, self.has_users, [*_on_cores(first), *inside])
        number = len(list(self.folder.iterdir()))
        outputs = self.folder / f"{number}.out", self.folder / f"{number}.err"
        return Job(on_first, {**os.environ, **(env or {})}, outputs if is_quiet else None)


@contextmanager
def machines(
    count: int,
    link: Link | None = None,
    cores: Sequence[frozenset[int]] | None = None,
    has_relays: bool = False,
) -> Iterator[Machines]:
    """Make machines m1, m2, ..., and take them down at the end, with all that runs on them.

    Args:
        count: number of machines.
        link: the link of each machine.
        cores: the cores of each machine; by default one each, in turns.
        has_relays: whether links may get a delay or loss later.

    Raises:
        MachinesError: if the system does not let this process make them.
    """
    available = sorted(os.sched_getaffinity(0))
    if cores is None:
        cores = [frozenset({available[number % len(available)]}) for number in range(count)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="machines.")))
        names = {f"m{number + 1}": f"{_NETWORK}.{number + 1}" for number in range(count)}
        hosts = ["127.0.0.1 localhost", f"{_SWITCH} switch"]
        hosts += [f"{address} {name}" for name, address in names.items()]
        (folder / "hosts").write_text("".join(f"{line}\n" for line in hosts))
        may_mount = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
        users = ["--user", "--map-root-user"] if may_mount.returncode else []
        init = stack.enter_context(
            _first_process(folder, "switch", ["unshare", *users, *_PROCESSES])
        )
        switch = Machine("switch", _SWITCH, init, frozenset(available))
        made = Machines(folder, bool(users), switch)
        _run(enter(init, made.has_users, ["sh", "-ec", _MAKE_BRIDGE]))
        for (name, address), own in zip(names.items(), cores, strict=True):
            processes = _PROCESSES if made.nodes else ()
            inside = enter(init, made.has_users, ["unshare", *processes])
            machine = Machine(
                name, address, stack.enter_context(_first_process(folder, name, inside)), own
            )
            made.nodes.append(machine)
            relayed = has_relays or (link is not None and (link.delay_seconds or link.loss))
            stack.enter_context(_relay(made, machine) if relayed else _cable(made, machine))
            _configure(made, machine)
        _write_remote_shell(made)
        if link is not None:
            made.link(link)
        made.own = frozenset([init, *(each.pid for each in processes_of(init))])
        yield made


@contextmanager
def _first_process(folder: Path, name: str, unshare: Sequence[str]) -> Iterator[int]:
    """Make the namespaces of a machine; its first process, by its number outside."""
    hosts = shlex.quote(str(folder / "hosts"))
    steps = [
        f"hostname {name}",
        f"mount --bind {hosts} /etc/hosts",
        f"mount -t tmpfs -o size={_SHARED_MEMORY_BYTES} tmpfs /dev/shm",
        "mount -t sysfs sysfs /sys",  # it shows the machine's network interfaces
        _WAIT_FOR_THE_END,
    ]
    shell = ["bash", "-ec", "; ".join(steps)]
    with _ready_process([*unshare, *_NAMESPACES, *shell]) as process:
        yield below(process.pid)[-1]


@contextmanager
def _ready_process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has printed ``ready``, and ends when its standard input does."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            if process.stdout.readline() != b"ready\n":
                process.wait()
                errors.seek(0)
                lines = errors.read().decode(errors="replace").splitlines()
                raise MachinesError(lines[-1] if lines else f"{shlex.join(command)} ended")
            yield process
        finally:
            process.communicate()  # closes its input


def _end(name: str) -> str:
    """The name of the cable's end at the switch."""
    return f"to-{name}"


@contextmanager
def _cable(made: Machines, machine: Machine) -> Iterator[None]:
    """A cable of the system from a machine to the switch."""
    pid = str(_number_at(made.switch.init, machine.init))
    cable = ["ip", "link", "add", _end(machine.name), "type", "veth"]
    made.run(made.switch, [*cable, "peer", "name", _DEVICE, "netns", pid])
    yield


@contextmanager
def _relay(made: Machines, machine: Machine) -> Iterator[None]:
    """A cable that delays and loses packets; see `tests.machines.relay`."""
    near, pid = f"{machine.name}-near", str(_number_at(made.switch.init, machine.init))
    program = [sys.executable, "-IS", str(Path(__file__).with_name("relay.py"))]
    inside = enter(made.switch.init, made.has_users, [*program, near, _end(machine.name)])
    with _ready_process(inside) as process:
        made.relays[machine.name] = process
        made.run(made.switch, ["ip", "link", "set", near, "netns", pid, "name", _DEVICE])
        yield


def _configure(made: Machines, machine: Machine) -> None:
    """Plug in the cable and give the machine its address."""
    made.run(made.switch, ["ip", "link", "set", _end(machine.name), "master", _BRIDGE, "up"])
    steps = [
        "ip link set lo up",
        f"ip addr add {machine.address}/24 dev {_DEVICE}",
        f"ip link set {_DEVICE} up",
    ]
    made.run(machine, ["sh", "-ec", "; ".join(steps)])


def _number_at(switch: int, init: int) -> int:
    """The number that the switch has for a machine's first process; outside it has another one."""
    return _numbers(init)[len(_numbers(switch)) - 1]


def _numbers(pid: int) -> list[int]:
    """The numbers that a process has in its namespaces, this process's first."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("NSpid:"))
    return [int(number) for number in line.split()[1:]]


def _write_remote_shell(made: Machines) -> None:
    """Write the program that MPICH's launcher calls in place of ssh, with options, a host and a
    command."""
    lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', "host=$1; shift"]
    lines.append("inside=\"cd '$PWD' && $*\"")
    lines.append("case $host in")
    for machine in made.nodes:
        # The launcher is in the namespace of users.
        shell = [*_on_cores(machine), "sh", "-c"]
        command = enter(_number_at(made.switch.init, machine.init), False, shell)
        lines.append(f'{machine.name}) exec {shlex.join(command)} "$inside" ;;')
    lines += ["esac", 'echo "no machine $host" >&2', "exit 1"]
    path = made.folder / "rsh"
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o700)


def _on_cores(machine: Machine) -> list[str]:
    return ["taskset", "-c", ",".join(map(str, sorted(machine.cores)))]


def _in_folder(folder: Path, command: Sequence[str]) -> list[str]:
    """A command that first goes to a folder, as a machine sees it."""
    return ["sh", "-c", 'cd "$0" && exec "$@"', str(folder), *command]


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise MachinesError(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it has ended
