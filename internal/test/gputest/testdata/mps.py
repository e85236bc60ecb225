"""A stand-in for nvidia-cuda-mps-control: the control daemon (-d, -f), and the program that hands it commands from standard input.

The daemon starts a server, a process of its own in a session of its own, for the first client. Clients are processes with the
stand-in for libcuda.so.1. They keep a connection to the socket "control" in the pipe directory for as long as they live and ask on
it before each call. A fatal fault of one reaches all; the server comes back when all of them have gone. One that dies in the middle
of a kernel spoils the server for good, which is what NVIDIA leaves undefined.
"""

import os
import selectors
import signal
import socket
import sys
import time

PIPE = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
MOST = 48
NOT_READY, MOST_CLIENTS, RPC = 807, 808, 806


def connected():
    """A connection to the daemon, or None. Paths of sockets are short, and a long one is an OSError."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(os.path.join(PIPE, "control"))
    except OSError:
        return None
    return link


def hand():
    link = connected()
    if link is None:
        print("Cannot find MPS control daemon process")
        return 1
    link.sendall(sys.stdin.buffer.read())
    link.shutdown(socket.SHUT_WR)
    while True:
        text = link.recv(4096)
        if not text:
            return 0
        sys.stdout.write(text.decode())


class Client:
    def __init__(self, pid):
        self.pid, self.busy, self.code = pid, False, 0


class Daemon:
    def __init__(self):
        self.selector = selectors.DefaultSelector()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(PIPE, "control"))
        self.listener.listen(64)
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.clients, self.read = {}, {}
        self.server, self.state, self.spoiled, self.quitting = 0, "", False, False
        self.limit, self.percentage = "", "100.0"

    def log(self, text):
        print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}.000 Server {self.server:5}] {text}", flush=True)

    def start_server(self):
        self.server, self.state = os.fork(), "ACTIVE"
        if self.server == 0:
            os.setsid()
            os.closerange(0, 1024)
            while True:
                signal.pause()
        self.log("New server")

    def lost(self):
        self.server, self.state, self.spoiled = 0, "", False
        for client in self.clients.values():
            client.code = client.code or RPC

    def fault(self, by, code):
        self.state = "FAULT"
        for client in self.clients.values():
            self.log(f"Status of client {{{client.pid}, 1}} is ACTIVE")
            client.code = client.code or code
        self.log(f"Client process {by.pid} encountered a fatal GPU error.")

    def leave(self, client):
        if client.busy and not client.code:
            self.spoiled, self.state = True, "FAULT"
        self.log(f"Client {client.pid} disconnected")
        if self.state == "FAULT" and not self.clients and not self.spoiled:
            self.state = "ACTIVE"

    def client(self, link, words):
        """The answer to a client's line: a CUDA error number, and for a new one the limit of the daemon."""
        client = self.clients.get(link)
        if words[0] == "client":
            if not self.server:
                self.start_server()
            if self.state != "ACTIVE" or self.quitting:
                return str(NOT_READY)
            if len(self.clients) == MOST:
                return str(MOST_CLIENTS)
            self.clients[link] = Client(int(words[1]))
            self.log(f"New client {words[1]} connected")
            return f"0 {self.limit}"
        if client is None:
            return str(NOT_READY)
        if words[0] == "fault" and not client.code:
            self.fault(client, int(words[1]))
        if words[0] in ("busy", "idle"):
            client.busy = words[0] == "busy"
        return str(client.code)

    def command(self, words):
        name, rest = words[0], words[1:]
        known = self.server and rest[:1] == [str(self.server)]
        if name == "get_server_list":
            return str(self.server) if self.server else ""
        if name == "get_default_active_thread_percentage":
            return self.percentage
        if name == "set_default_active_thread_percentage":
            self.percentage = rest[0]
            return ""
        if name == "get_default_device_pinned_mem_limit":
            return ""
        if name == "set_default_device_pinned_mem_limit":
            self.limit = f"{rest[0]}={rest[1]}"
            return ""
        if name == "quit":
            self.quitting = True
            return ""
        if name == "start_server":
            if not self.server:
                self.start_server()
            return ""
        if name not in ("get_server_status", "get_client_list", "shutdown_server"):
            return f'Unknown command "{name}"'
        if not known:
            return f"Server {' '.join(rest[:1])} not found"
        if name == "get_server_status":
            return self.state
        if name == "get_client_list":
            return "\n".join(str(client.pid) for client in self.clients.values())
        os.kill(self.server, signal.SIGKILL)
        return ""

    def take(self, link):
        text = link.recv(4096)
        if not text:
            self.selector.unregister(link)
            link.close()
            self.read.pop(link, None)
            client = self.clients.pop(link, None)
            if client:
                self.leave(client)
            return
        lines = (self.read.get(link, b"") + text).split(b"\n")
        self.read[link] = lines.pop()
        for line in lines:
            words = line.decode().split()
            if not words:
                continue
            if words[0] in ("client", "status", "busy", "idle", "fault"):
                said = self.client(link, words) + "\n"
            else:
                said = self.command(words)
                said += "\n" if said else ""
            try:
                link.sendall(said.encode())
            except OSError:
                pass

    def serve(self):
        while not (self.quitting and not self.clients):
            for key, _ in self.selector.select(0.05):
                if key.fileobj is self.listener:
                    link, _ = self.listener.accept()
                    self.selector.register(link, selectors.EVENT_READ)
                    continue
                try:
                    self.take(key.fileobj)
                except ConnectionError:
                    pass
            if self.server and os.waitpid(self.server, os.WNOHANG)[0]:
                self.lost()
        if self.server:
            os.kill(self.server, signal.SIGKILL)
            os.waitpid(self.server, 0)
        os.unlink("control")
        os.unlink("nvidia-cuda-mps-control.pid")


def main():
    if len(sys.argv) == 1:
        return hand()
    if connected() is not None:
        print("An instance of this daemon is already running")
        return 1
    os.makedirs(PIPE, exist_ok=True)
    os.chdir(PIPE)
    if os.path.exists("control"):
        os.unlink("control")
    try:
        daemon = Daemon()
    except OSError:
        print("Cannot find MPS control daemon process")
        return 1
    if "-d" in sys.argv and os.fork():
        return 0
    if "-d" in sys.argv:
        os.setsid()
        # Whoever reads what it prints must not wait for it.
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
    with open("nvidia-cuda-mps-control.pid", "w") as file:
        file.write(str(os.getpid()))
    daemon.serve()
    return 0


sys.exit(main())
