"""`python bench/stream_server.py FILE`: answers every POST with the stream in FILE, a chunk and a write an event.

The port is the first line on stdout; it ends when stdin does.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def main() -> None:
    events = [event + b"\n\n" for event in Path(sys.argv[1]).read_bytes().split(b"\n\n") if event]
    pieces = [_HEAD, *(b"%x\r\n%s\r\n" % (len(event), event) for event in events), b"0\r\n\r\n"]
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(listener, pieces), daemon=True).start()
    sys.stdin.read()


def _accept(listener: socket.socket, pieces: list[bytes]) -> None:
    while True:
        client, _ = listener.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_serve, args=(client, pieces), daemon=True).start()


def _serve(client: socket.socket, pieces: list[bytes]) -> None:
    with client, client.makefile("rb") as lines:
        while lines.readline():
            length = 0
            while (line := lines.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            lines.read(length)
            for piece in pieces:
                client.sendall(piece)


if __name__ == "__main__":
    main()
