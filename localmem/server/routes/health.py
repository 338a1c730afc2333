"""/health/live, /health/ready and /metrics: for whoever watches over the server. They name no user and no text."""

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from localmem.errors import LocalmemError
from localmem.server.dependencies import Services, Shared

router = APIRouter()


@router.get("/health/live")
async def live() -> dict[str, str]:
    """The server runs."""
    return {"status": "ok"}


@router.get("/health/ready")
def ready(shared: Shared) -> JSONResponse:
    """Backbone and store answer; 503 with what does not until then."""
    parts = {"store": _store(shared), "backbone": _backbone(shared)}
    well = all(state == "ok" for state in parts.values())
    return JSONResponse({"status": "ok" if well else "not ready", **parts}, status_code=200 if well else 503)


@router.get("/metrics")
def metrics(shared: Shared, request: Request) -> Response:
    """For Prometheus. Raises Problem without a key where others than this machine are served."""
    shared.door.may_watch(request)
    return Response(shared.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _store(shared: Services) -> str:
    try:
        shared.runtime.store.users()
    except LocalmemError as error:
        return str(error)
    return "ok"


def _backbone(shared: Services) -> str:
    if not shared.warm.is_set():
        return "loading"
    return "ok" if shared.runtime.backbone_answers() else "does not answer"
