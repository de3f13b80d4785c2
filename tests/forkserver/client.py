"""In the place of an interpreter: runs a program in a fork of one that has imported TensorFlow.

    python -I -S client.py FOLDER PROGRAM [ARGUMENT]...

FOLDER has the sockets 0 and 1 of two ``server.py``, for even and odd ranks. The program runs on
this process's cores and in its namespaces, hence on its simulated machine. A launcher starts this
process and takes it for the program: it passes signals on to the program and ends as that does, by
a signal, too. When it is killed, the program is. The program finds this process's number in
``LAUNCHED_PID``, as its own parent is no launcher.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM)
# Those of a simulated machine, in the order in which a process can enter them.
NAMESPACES = ("user", "pid", "net", "uts", "ipc", "mnt")


def main() -> None:
    folder, *program = sys.argv[1:]
    descriptors = [0, 1, 2]
    if "PMI_FD" in os.environ:
        descriptors.append(int(os.environ["PMI_FD"]))
    environment = {**os.environ, "LAUNCHED_PID": str(os.getpid())}
    spaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
    request = {
        "program": program,
        "folder": os.getcwd(),
        "environment": environment,
        "cores": sorted(os.sched_getaffinity(0)),
        "spaces": len(spaces),
    }
    body = json.dumps(request).encode()
    os.chdir(folder)  # The name of a socket has a hundred characters at most.
    server = socket.socket(socket.AF_UNIX)
    number = str(int(os.environ.get("PMI_RANK", "0")) % 2)
    server.connect(number)
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    socket.send_fds(server, [len(body).to_bytes(8, "big")], [*spaces, *descriptors])
    server.sendall(body)
    for descriptor in descriptors[3:]:
        os.close(descriptor)  # Its launcher is to notice when the program closes it.
    answers = server.makefile()
    pid = int(answers.readline() or sys.exit(f"the server has ended, see {folder}/{number}.log"))
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
    status = int(answers.readline())
    if status < 0:
        if -status in PASSED_ON:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


main()
