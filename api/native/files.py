"""Downloads of stored files by their signed URL."""

import re
from typing import Annotated

from fastapi import Query, Request
from starlette.responses import Response, StreamingResponse

from api.http.errors import ApiError
from api.http.routing import InfrastructureDep, make_router

router = make_router("files", public=True)

_RANGE = re.compile(r"bytes=(?:(\d{1,15})-(\d{0,15})|-(\d{1,15}))")


@router.get(
    "/files/{file_id}",
    summary="Download a file",
    response_class=Response,
    responses={
        200: {
            "description": "The file",
            "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
        },
        206: {"description": "The requested `Range` of the file"},
        304: {"description": "The client's cached copy is current"},
    },
)
async def get_file(
    file_id: str,
    request: Request,
    infrastructure: InfrastructureDep,
    expires: Annotated[str, Query(max_length=20)] = "",
    signature: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Webhook events contain these URLs. They need no API key and expire after a day."""
    file = await infrastructure.files.find_signed(file_id, expires, signature)
    etag = f'"{file.id}"'  # files never change
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, max-age=3600",
        "Content-Disposition": "inline",
        "ETag": etag,
        "X-Content-Type-Options": "nosniff",
    }
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    part = None
    if request.headers.get("if-range", etag) == etag:
        part = _requested_range(request.headers.get("range", ""), file.size)
    start, end = part or (0, file.size)
    headers["Content-Length"] = str(end - start)
    if part is not None:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    return StreamingResponse(
        await infrastructure.files.open(file, start, end),
        status_code=200 if part is None else 206,
        headers=headers,
        media_type=file.media_type,
    )


def _requested_range(header: str, size: int) -> tuple[int, int] | None:
    """Parses a `Range` header to bytes [start, end); None for the whole file. Invalid and multiple
    ranges are ignored, as HTTP allows. Raises ApiError(range_not_satisfiable)."""
    match = _RANGE.fullmatch(header.strip().lower())
    if match is None:
        return None
    first, last, suffix = match.groups()
    if suffix is not None:
        start, end = max(size - int(suffix), 0), size
    else:
        start, end = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < int(first):
            return None
    if start >= end:
        headers = {"Content-Range": f"bytes */{size}"}
        raise ApiError("range_not_satisfiable", f"the file has {size} bytes", headers=headers)
    return start, end
