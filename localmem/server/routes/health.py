"""/health, /health/live, /health/ready and /metrics, for monitoring. They name no user and no text."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from localmem.errors import LocalmemError
from localmem.server.dependencies import SharedServices
from localmem.server.documents import written_as

router = APIRouter()


@router.get("/health/live")
@router.head("/health/live", include_in_schema=False)
async def live() -> dict[str, str]:
    """The server is running."""
    return {"status": "ok"}


@router.get("/health")
@router.get("/health/ready")
@router.head("/health", include_in_schema=False)
@router.head("/health/ready", include_in_schema=False)
def ready(services: SharedServices) -> JSONResponse:
    """200 when backbone and store answer; before that 503 with the reason."""
    parts = {"store": "ok", "backbone": "loading"}
    try:
        services.runtime.store.vectors.encoder()  # a row, however many users there are
    except LocalmemError as error:
        parts["store"] = str(error)
    if services.warm.is_set():
        parts["backbone"] = "ok" if services.runtime.backbone_answers() else "does not answer"
    is_ready = all(state == "ok" for state in parts.values())
    return JSONResponse({"status": "ok" if is_ready else "not ready", **parts}, status_code=200 if is_ready else 503)


@router.get("/metrics", **written_as("text/plain"))
def metrics(services: SharedServices, request: Request) -> Response:
    """The metrics for Prometheus. Raises ApiError without a key when the server is open to other machines."""
    services.auth.check_metrics(request)
    return Response(services.metrics.text(), media_type=CONTENT_TYPE_LATEST)
