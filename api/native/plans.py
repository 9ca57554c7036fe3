"""The plans there are."""

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from api.http.deps import PlatformDep
from api.http.routing import make_router

router = make_router()


class Plan(BaseModel):
    id: str
    name: str
    price: float  # USD a month
    features: list[str]


class PlanList(BaseModel):
    plans: list[Plan]


@router.get("/plans", tags=["billing"], summary="The plans there are", response_model=PlanList)
async def list_plans(platform: PlatformDep) -> Response:
    plans = [
        {"id": plan.id, "name": plan.name, "price": plan.price, "features": plan.features}
        for plan in platform.plans.plans
    ]
    return JSONResponse({"plans": plans})
