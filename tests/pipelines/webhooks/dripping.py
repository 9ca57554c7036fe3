"""A server that sends one file at once, and everything else a byte at a time without end."""

import asyncio

from aiohttp import web


class DrippingServer:
    """Answers paths that end with `/whole`, or `/whole.wav`, with `whole`, and others slowly."""

    def __init__(self, whole: bytes) -> None:
        self._whole = whole
        self.asked = 0
        self.dripping = 0  # answers
        self.has_dripped = asyncio.Event()

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked += 1
        if request.path.endswith(("/whole", "/whole.wav")):
            return web.Response(body=self._whole)
        response = web.StreamResponse()
        await response.prepare(request)
        self.dripping += 1
        self.has_dripped.set()
        try:
            while True:
                await response.write(b"a")
                await asyncio.sleep(0.02)
        except ConnectionResetError:
            return response
        finally:
            self.dripping -= 1
