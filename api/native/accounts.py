"""Sign-up, login and profile."""

from datetime import datetime
from typing import Annotated

from email_validator import EmailNotValidError, validate_email
from pydantic import AfterValidator, BaseModel, Field
from starlette.requests import Request

from api.http.deps import PlatformDep, PrincipalDep
from api.http.routing import make_router
from api.http.schemas import ErrorBody, OneLine, RequestModel
from pipelines.accounts.service import SignedIn

public = make_router(public=True)
profile = make_router(scope="keys")
routers = (public, profile)


def _normal_email(text: str) -> str:
    """Lower case and IDNA, so that one address is one account."""
    try:
        # Nothing is sent there, so the domains of tests will do.
        address = validate_email(text.strip(), check_deliverability=False, test_environment=True)
        return address.normalized.lower()
    except EmailNotValidError:
        raise ValueError("not an e-mail address") from None


Email = Annotated[
    str,
    Field(max_length=254, json_schema_extra={"format": "email"}),
    AfterValidator(_normal_email),
]
Password = Annotated[str, Field(min_length=8, max_length=256)]


class SignUp(RequestModel):
    email: Email
    password: Password
    name: OneLine | None = None
    company: OneLine | None = None


class LogIn(RequestModel):
    email: Annotated[str, Field(max_length=254)]
    password: Annotated[str, Field(max_length=256)]


class Profile(RequestModel):
    name: OneLine | None = None
    company: OneLine | None = None


class SignedUpUser(BaseModel):
    id: str
    email: str
    name: str
    created_at: datetime


class Session(BaseModel):
    user: SignedUpUser
    token: str  # a JWT for 24 hours, accepted wherever an API key is


class ProfileUser(BaseModel):
    id: str
    email: str
    name: str
    company: str
    updated_at: datetime


@public.post("/auth/signup", status_code=201, tags=["accounts"], summary="Make an account")
async def sign_up(body: SignUp, request: Request, platform: PlatformDep) -> Session:
    await platform.request_limits.count_sign_up(request)
    signed_in = await platform.accounts.sign_up(
        body.email, body.password, body.name or "", body.company or ""
    )
    return _session(signed_in)


@public.post(
    "/auth/login",
    tags=["accounts"],
    summary="A token for an account",
    responses={401: {"model": ErrorBody, "description": "The address or the password is wrong"}},
)
async def log_in(body: LogIn, request: Request, platform: PlatformDep) -> Session:
    try:
        email = _normal_email(body.email)
    except ValueError:
        email = ""  # no account has it; the answer and its time are those of a wrong password
    async with platform.request_limits.counted_login(request):
        return _session(await platform.accounts.log_in(email, body.password))


@profile.put("/auth/profile", tags=["accounts"], summary="Change name or company")
async def update_profile(
    body: Profile, principal: PrincipalDep, platform: PlatformDep
) -> ProfileUser:
    user = await platform.accounts.update_profile(principal, body.name, body.company)
    return ProfileUser(
        id=str(user.id),
        email=user.email,
        name=user.name,
        company=user.company,
        updated_at=user.updated_at,
    )


def _session(signed_in: SignedIn) -> Session:
    user = signed_in.user
    return Session(
        user=SignedUpUser(
            id=str(user.id), email=user.email, name=user.name, created_at=user.created_at
        ),
        token=signed_in.token,
    )
