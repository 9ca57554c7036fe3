"""Prompts from conversations, by the chat template of a model's tokenizer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from transformers import AutoTokenizer

from configs.schema.models.llm import TransformersChatConfig
from models.errors import EngineError, InvalidEngineRequest, UnsupportedFeature
from models.llm.answer_reader import THINK
from models.llm.base import ChatMessage, GenerationRequest
from models.llm.tool_calls import AFTER_NAME, BEFORE_NAME, END, MARK


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: tuple[int, ...]
    thinking: bool  # it has opened the reasoning


class PromptWriter:
    """The tokenizer of a model and its chat template."""

    def __init__(self, folder: Path, config: TransformersChatConfig) -> None:
        """Raises EngineError."""
        source = {} if config.gguf_file is None else {"gguf_file": config.gguf_file}
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, **source
            )
        except (OSError, ValueError, ImportError) as error:
            raise EngineError(
                f"the tokenizer of {config.id!r} cannot be loaded: {error}"
            ) from error
        template = self.tokenizer.chat_template
        if not isinstance(template, str):
            raise EngineError(f"the tokenizer of {config.id!r} has no chat template")
        self._takes_calls = "tool_calls" in template
        self._takes_tools = config.tools != "none"
        self._tools_argument = config.tools_argument

    def write(self, request: GenerationRequest, *, no_thinking: bool = False) -> Prompt:
        """`no_thinking` when the answer is constrained, which leaves no place for reasoning.

        Raises InvalidEngineRequest, or UnsupportedFeature when the model knows no tools.
        """
        thinking = request.enable_thinking and not no_thinking
        options = {**request.template_kwargs, "enable_thinking": thinking}
        if request.tools and request.tool_choice != "none":
            if not self._takes_tools:
                raise UnsupportedFeature("this model has no tools")
            options[self._tools_argument] = list(request.tools)
        options |= {"tokenize": False, "add_generation_prompt": True}
        options.pop("conversation", None)  # ours
        try:
            messages = [self._to_message(message) for message in request.messages]
            text: str = self.tokenizer.apply_chat_template(messages, **options)
        except (TemplateError, TypeError, ValueError) as error:
            raise InvalidEngineRequest(f"the model refuses the messages: {error}") from error
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Prompt(tuple(tokens), text.rstrip().endswith(THINK))

    def decode(self, tokens: Sequence[int]) -> str:
        """Special tokens included, which AnswerReader parses."""
        text: str = self.tokenizer.decode(
            list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    def _to_message(self, message: ChatMessage) -> dict[str, Any]:
        extra, content = dict(message.extra), message.content
        if calls := extra.pop("tool_calls", None):
            if self._takes_calls:
                extra["tool_calls"] = [_with_arguments_read(call) for call in calls]
            else:
                content = "\n".join(filter(None, [content, *map(_written, calls)]))
        return {"role": message.role, "content": content, **extra}


def _with_arguments_read(call: dict[str, Any]) -> dict[str, Any]:
    """Templates serialise arguments, so a string would be quoted twice."""
    function = call["function"]
    return {**call, "function": {**function, "arguments": json.loads(function["arguments"])}}


def _written(call: dict[str, Any]) -> str:
    """As the model writes calls itself."""
    function = call["function"]
    return f"{MARK}{BEFORE_NAME}{function['name']}{AFTER_NAME}{function['arguments']}{END}"
