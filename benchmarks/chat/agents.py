"""Ten tasks of agents with tools, each in LangChain, openai-agents and pydantic-ai.

    python -m venv agents
    agents/bin/pip install langchain langchain-openai openai-agents 'pydantic-ai-slim[openai]'
    agents/bin/python -m benchmarks.chat.agents http://127.0.0.1:8000 KEY

They talk to a running service by OpenAI's interface, with the defaults of each library. A task ends
rightly when its tools were used as they should, and the last answer says what they gave.
"""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

INSTRUCTION = "You are a helpful assistant. Use the tools where they help. Answer briefly."
MOST_TURNS = 6  # of the model in one task
WEATHER = {"paris": 18, "rome": 27, "oslo": 9}  # degrees Celsius
EUROS = 0.9  # for a dollar

Call = tuple[str, dict[str, Any]]


class World:
    """What the tools of one task know and did. The models read signatures and docstrings."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.orders = {"A17": "processing", "B42": "shipped"}

    def get_weather(self, city: str) -> str:
        """Get the current weather in a city."""
        self.calls.append(("get_weather", {"city": city}))
        degrees = WEATHER.get(city.casefold().split(",")[0])
        return f"{degrees} degrees Celsius, sunny" if degrees else f"No weather for {city}."

    def add(self, a: float, b: float) -> float:
        """Add two numbers."""
        self.calls.append(("add", {"a": a, "b": b}))
        return a + b

    def convert_currency(self, amount: float, source: str, target: str) -> str:
        """Convert an amount of money from one currency to another (ISO codes: USD, EUR)."""
        self.calls.append(("convert_currency", {"source": source, "target": target}))
        rates = {("USD", "EUR"): EUROS, ("EUR", "USD"): 1 / EUROS}
        rate = rates.get((source.upper(), target.upper()))
        return f"{amount * rate:.2f} {target}" if rate else "These currencies are not supported."

    def get_order(self, order_id: str) -> str:
        """Get the status of an order by its number."""
        self.calls.append(("get_order", {"order_id": order_id}))
        status = self.orders.get(order_id)
        return f"Order {order_id} is {status}." if status else f"There is no order {order_id}."

    def cancel_order(self, order_id: str) -> str:
        """Cancel an order by its number. Orders that are shipped cannot be cancelled."""
        self.calls.append(("cancel_order", {"order_id": order_id}))
        if self.orders.get(order_id) != "processing":
            return f"Order {order_id} cannot be cancelled."
        self.orders[order_id] = "cancelled"
        return f"Order {order_id} is cancelled."

    def set_timer(self, minutes: int) -> str:
        """Start a timer."""
        self.calls.append(("set_timer", {"minutes": minutes}))
        return f"The timer is set for {minutes} minutes."

    def book_table(self, name: str, people: int, time: str) -> str:
        """Book a table in the restaurant for today."""
        self.calls.append(("book_table", {"name": name, "people": people, "time": time}))
        return f"A table for {people} is booked at {time} in the name of {name}."

    def names(self) -> list[str]:
        """The tools that were called, in order."""
        return [name for name, _ in self.calls]


@dataclass(frozen=True, slots=True)
class Server:
    url: str  # with the path of OpenAI's interface
    key: str
    model: str


@dataclass(frozen=True, slots=True)
class Task:
    name: str
    ask: str
    tools: tuple[str, ...]
    is_right: Callable[[World, str], bool]  # of the last answer


def has(text: str, pattern: str) -> bool:
    return re.search(pattern, text.replace(",", ""), re.IGNORECASE) is not None


def asks_for_the_order(world: World, text: str) -> bool:
    return not world.calls and has(text, r"\?|please|need|provide") and has(text, "order")


TASKS = (
    Task(
        "weather of a city",
        "What is the weather in Paris?",
        ("get_weather", "set_timer"),
        lambda world, text: set(world.names()) == {"get_weather"} and has(text, r"\b18\b"),
    ),
    Task(
        "sum of two numbers",
        "What is 4817 plus 2954?",
        ("add", "get_weather"),
        lambda world, text: has(text, r"\b7771\b"),
    ),
    Task(
        "look up an order, then cancel it",
        "Look up my order A17. If it has not been shipped yet, cancel it.",
        ("get_order", "cancel_order"),
        lambda world, text: world.orders["A17"] == "cancelled" and has(text, "cancel"),
    ),
    Task(
        "convert money, then add",
        "Convert 100 US dollars to euros, then add 15 euros. How many euros is that in total?",
        ("convert_currency", "add"),
        lambda world, text: "convert_currency" in world.names() and has(text, r"\b105\b"),
    ),
    Task(
        "question that needs no tool",
        "Who wrote Romeo and Juliet?",
        ("get_weather", "get_order"),
        lambda world, text: not world.calls and has(text, "shakespeare"),
    ),
    Task(
        "ask for a missing argument",
        "Please cancel my order.",
        ("get_order", "cancel_order"),
        asks_for_the_order,
    ),
    Task(
        "choose one tool of four",
        "Set a timer for ten minutes.",
        ("get_weather", "set_timer", "get_order", "add"),
        lambda world, text: world.calls == [("set_timer", {"minutes": 10})] and has(text, "timer"),
    ),
    Task(
        "compare two cities",
        "Is it warmer in Rome or in Oslo now?",
        ("get_weather", "add"),
        lambda world, text: (
            world.names() == ["get_weather"] * 2
            and has(text, "rome")
            and not has(text, r"oslo is (currently )?warmer|warmer in oslo")
        ),
    ),
    Task(
        "say that an order is unknown",
        "What is the status of my order Z99?",
        ("get_order", "cancel_order"),
        lambda world, text: (
            set(world.names()) == {"get_order"} and has(text, r"\bno\b|\bnot\b|n['’]t")
        ),
    ),
    Task(
        "fill in three arguments",
        "Book a table for four people at 19:30 in the name of Maria.",
        ("book_table", "get_weather"),
        lambda world, text: (
            world.calls == [("book_table", {"name": "Maria", "people": 4, "time": "19:30"})]
            and has(text, "book|table")
        ),
    ),
)


def with_langchain(server: Server, task: Task, tools: Sequence[Any]) -> str:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(base_url=server.url, api_key=server.key, model=server.model)
    agent = create_agent(chat, tools=list(tools), system_prompt=INSTRUCTION)
    messages = {"messages": [{"role": "user", "content": task.ask}]}
    answer = agent.invoke(messages, {"recursion_limit": 2 * MOST_TURNS})
    return str(answer["messages"][-1].text)


def with_openai_agents(server: Server, task: Task, tools: Sequence[Any]) -> str:
    from agents import Agent, OpenAIProvider, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=server.url, api_key=server.key)
    provider = OpenAIProvider(openai_client=client)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    functions = [function_tool(tool) for tool in tools]
    agent: Any = Agent(name="Helper", instructions=INSTRUCTION, model=server.model, tools=functions)
    result = Runner.run_sync(agent, task.ask, max_turns=MOST_TURNS, run_config=config)
    return str(result.final_output)


def with_pydantic_ai(server: Server, task: Task, tools: Sequence[Any]) -> str:
    from pydantic_ai import Agent, UsageLimits
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=server.url, api_key=server.key)
    chat = OpenAIChatModel(server.model, provider=provider)
    agent: Any = Agent(chat, instructions=INSTRUCTION, tools=list(tools))
    limits = UsageLimits(request_limit=MOST_TURNS)
    return str(agent.run_sync(task.ask, usage_limits=limits).output)


Framework = Callable[[Server, Task, Sequence[Any]], str]
FRAMEWORKS: dict[str, Framework] = {
    "langchain": with_langchain,
    "openai-agents": with_openai_agents,
    "pydantic-ai": with_pydantic_ai,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("url", help="of the service")
    options.add_argument("key")
    options.add_argument("--frameworks", nargs="+", default=FRAMEWORKS, choices=FRAMEWORKS)
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--model", default="gpt-4o-mini", help="an alias of the default model")
    given = options.parse_args()
    server = Server(f"{given.url}/openai/v1", given.key, given.model)
    for name in given.frameworks:
        right: Counter[str] = Counter()
        for task in TASKS:
            right[task.name] = sum(run(FRAMEWORKS[name], server, task) for _ in range(given.runs))
        tasks = sum(count == given.runs for count in right.values())
        runs = given.runs * len(TASKS)
        print(f"{name}: {right.total()} of {runs} runs and {tasks} of {len(TASKS)} tasks are right")
        print(f"  {dict(right)}", flush=True)


def run(framework: Framework, server: Server, task: Task) -> bool:
    """Runs a task once, prints what was done, and returns whether it ended rightly."""
    world = World()
    began = time.monotonic()
    try:
        text = framework(server, task, [getattr(world, name) for name in task.tools])
        is_right = task.is_right(world, text)
    except Exception as error:  # of any library: the task did not end
        text = f"{type(error).__name__}: {error}"
        is_right = False
    line = {"right": is_right, "calls": world.calls, "text": text[:300]}
    print(f"{task.name} ({time.monotonic() - began:.1f} s): {json.dumps(line)}", flush=True)
    return is_right


if __name__ == "__main__":
    main()
