"""Ten tasks of agents with tools, each in LangChain, openai-agents and pydantic-ai, and ten others
of the same kinds, which were not used to choose a prompt (`--half held_out`).

    python -m venv agents
    agents/bin/pip install langchain langchain-openai openai-agents 'pydantic-ai-slim[openai]'
    agents/bin/python -m benchmarks.chat.agents http://127.0.0.1:8000 KEY

They talk to a running service by OpenAI's interface, with the defaults of each library. A task ends
rightly when its tools were used as they should be, and the last answer says what they returned.
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

PRICES = {"nokia": 4, "siemens": 190}  # euros of a share
KILOMETRES = 1.6  # for a mile

Call = tuple[str, dict[str, Any]]


class World:
    """What the tools of one task know and did. The models read signatures and docstrings."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def names(self) -> list[str]:
        """The tools that were called, in order."""
        return [name for name, _ in self.calls]


class Shop(World):
    def __init__(self) -> None:
        super().__init__()
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


class Office(World):
    def __init__(self) -> None:
        super().__init__()
        self.rooms = {"oak": "free", "elm": "taken"}

    def get_share_price(self, company: str) -> str:
        """Get the current price of a share of a company."""
        self.calls.append(("get_share_price", {"company": company}))
        price = PRICES.get(company.casefold())
        return f"{price} euros" if price else f"No price for {company}."

    def multiply(self, a: float, b: float) -> float:
        """Multiply two numbers."""
        self.calls.append(("multiply", {"a": a, "b": b}))
        return a * b

    def convert_length(self, value: float, source: str, target: str) -> str:
        """Convert a length from one unit to another (units: mi, km)."""
        self.calls.append(("convert_length", {"source": source, "target": target}))
        factors = {"mi": KILOMETRES, "km": 1 / KILOMETRES}
        factor = factors.get(source.casefold()) if source != target else 1.0
        return f"{value * factor:.1f} {target}" if factor else "These units are not supported."

    def check_room(self, room: str) -> str:
        """Tell whether a meeting room is free, by its name."""
        self.calls.append(("check_room", {"room": room}))
        state = self.rooms.get(room.casefold())
        return f"The room {room} is {state}." if state else f"There is no room {room}."

    def reserve_room(self, room: str) -> str:
        """Reserve a meeting room by its name. Rooms that are taken cannot be reserved."""
        self.calls.append(("reserve_room", {"room": room}))
        if self.rooms.get(room.casefold()) != "free":
            return f"The room {room} cannot be reserved."
        self.rooms[room.casefold()] = "reserved"
        return f"The room {room} is reserved for you."

    def switch_light(self, place: str, on: bool) -> str:
        """Switch a light on or off."""
        self.calls.append(("switch_light", {"place": place.casefold(), "on": on}))
        return f"The light in the {place} is {'on' if on else 'off'}."

    def find_book(self, title: str) -> str:
        """Find out on which shelf of the library a book is."""
        self.calls.append(("find_book", {"title": title}))
        return f"There is no book {title}."

    def add_event(self, title: str, day: str, time: str) -> str:
        """Add an event to the calendar."""
        event = {"title": title.casefold(), "day": day, "time": time}
        self.calls.append(("add_event", event))
        return f"{title} is in the calendar on {day} at {time}."


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
    is_right: Callable[[Any, str], bool]  # of the world, and of the last answer


def has(text: str, pattern: str) -> bool:
    return re.search(pattern, text.replace(",", ""), re.IGNORECASE) is not None


def asks_for(world: World, text: str, thing: str) -> bool:
    return not world.calls and has(text, r"\?|please|need|provide") and has(text, thing)


TUNED = (
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
        lambda world, text: asks_for(world, text, "order"),
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
HELD_OUT = (
    Task(
        "price of a share",
        "How much does a share of Nokia cost?",
        ("get_share_price", "add_event"),
        lambda world, text: set(world.names()) == {"get_share_price"} and has(text, r"\b4\b"),
    ),
    Task(
        "product of two numbers",
        "How much is 364 times 27?",
        ("multiply", "check_room"),
        lambda world, text: has(text, r"\b9828\b"),
    ),
    Task(
        "check a room, then reserve it",
        "Check the meeting room Oak. If it is free, reserve it.",
        ("check_room", "reserve_room"),
        lambda world, text: world.rooms["oak"] == "reserved" and has(text, "reserved"),
    ),
    Task(
        "convert a length, then multiply",
        "Convert 10 miles to kilometers, then multiply that by 3. How many kilometers is it?",
        ("convert_length", "multiply"),
        lambda world, text: "convert_length" in world.names() and has(text, r"\b48\b"),
    ),
    Task(
        "fact that needs no tool",
        "Which planet is closest to the sun?",
        ("get_share_price", "check_room"),
        lambda world, text: not world.calls and has(text, "mercury"),
    ),
    Task(
        "ask for a missing name",
        "Please reserve a meeting room for me.",
        ("check_room", "reserve_room"),
        lambda world, text: asks_for(world, text, "room"),
    ),
    Task(
        "choose one device of four",
        "Turn off the light in the kitchen.",
        ("find_book", "switch_light", "get_share_price", "multiply"),
        lambda world, text: (
            world.calls == [("switch_light", {"place": "kitchen", "on": False})]
            and has(text, "light")
        ),
    ),
    Task(
        "compare two shares",
        "Which share costs more now, Nokia or Siemens?",
        ("get_share_price", "multiply"),
        lambda world, text: (
            world.names() == ["get_share_price"] * 2
            and has(text, "siemens")
            and not has(text, r"nokia (share )?(costs|is) more")
        ),
    ),
    Task(
        "say that a book is unknown",
        "On which shelf is the book Winter Harbour?",
        ("find_book", "add_event"),
        lambda world, text: (
            set(world.names()) == {"find_book"} and has(text, r"\bno\b|\bnot\b|n['’]t")
        ),
    ),
    Task(
        "fill in an event",
        "Add the event Dentist to my calendar, on Friday at 9:15.",
        ("add_event", "find_book"),
        lambda world, text: (
            len(world.calls) == 1
            and set(world.calls[0][1].values()) <= {"dentist", "Friday", "9:15", "09:15"}
            and has(text, "dentist")
        ),
    ),
)
HALVES: dict[str, tuple[type[World], tuple[Task, ...]]] = {
    "tuned": (Shop, TUNED),
    "held_out": (Office, HELD_OUT),
}


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
    options.add_argument("--half", default="tuned", choices=HALVES)
    given = options.parse_args()
    world, tasks = HALVES[given.half]
    server = Server(f"{given.url}/openai/v1", given.key, given.model)
    for name in given.frameworks:
        right: Counter[str] = Counter()
        for task in tasks:
            ends = [run(FRAMEWORKS[name], server, task, world()) for _ in range(given.runs)]
            right[task.name] = sum(ends)
        whole = sum(count == given.runs for count in right.values())
        runs = given.runs * len(tasks)
        print(f"{name}: {right.total()} of {runs} runs and {whole} of {len(tasks)} tasks are right")
        print(f"  {dict(right)}", flush=True)


def run(framework: Framework, server: Server, task: Task, world: World) -> bool:
    """Runs a task once, prints what was done, and returns whether it ended rightly."""
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
