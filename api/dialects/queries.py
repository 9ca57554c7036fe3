"""Options of a request in its query, read alike for HTTP and for the handshake of a socket."""

from typing import Any, ClassVar, Self, get_origin

from pydantic import BaseModel, model_validator
from starlette.datastructures import QueryParams

from api.http.errors import ApiError
from api.http.uploads import validated
from models.base import ModelInfo

_OFF = ("", "false", "0", "none", "null")


class DialectQuery(BaseModel):
    """A subclass has the parameters; others are ignored, but for those that it refuses."""

    refused: ClassVar[frozenset[str]] = frozenset()
    """Those that would change the answer and are not supported; switched off they do not matter."""

    @model_validator(mode="before")
    @classmethod
    def _refuses(cls, values: Any) -> Any:
        for name in sorted(cls.refused & set(values)):
            if str(values[name]).strip().lower() not in _OFF:
                raise ValueError(f"{name}: is not supported by this service; leave it out")
        return values

    @classmethod
    def of_socket(cls, params: QueryParams) -> Self:
        """Raises ApiError(validation_error) that names the parameter."""
        lists = {
            name for name, one in cls.model_fields.items() if get_origin(one.annotation) is list
        }
        return validated(
            cls,
            {name: params.getlist(name) if name in lists else params[name] for name in params},
        )


def check_model(field: str, families: tuple[str, ...], named: str, model: ModelInfo) -> None:
    """Every name that begins as one of the `families` stands for the deployed model. Raises
    ApiError(model_not_found)."""
    if not named.startswith(families) and named not in (model.id, *model.aliases):
        message = f"{field}: no model has that name; {', '.join(families)} stand for {model.id}"
        raise ApiError("model_not_found", message, param=field)
