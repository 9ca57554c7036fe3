"""Parser state of an answer in its grammar, with the shortest text that completes it. A pushdown
automaton that follows all parses at once; stacks share their tails, as in a graph-structured stack
(Tomita, 1985)."""

import math

from models.llm.structured_output.ast import (
    Alternation,
    CharSet,
    Grammar,
    Node,
    Repeat,
    Sequence,
    Text,
)


class _Stack:
    """A node that is yet to be derived, and the stack after it. Equal stacks are one object."""

    __slots__ = ("_above", "_terminals", "min_bytes", "node", "rest")

    def __init__(self, node: Node | None, rest: "_Stack | None") -> None:
        """A stack without a node is the end of the answer."""
        self.node, self.rest = node, rest
        self.min_bytes: float = node.min_bytes + rest.min_bytes if node and rest else 0
        self._above: dict[Node, _Stack] | None = None
        self._terminals: list[_Stack] | None = None

    def push(self, node: Node) -> "_Stack":
        if self._above is None:
            self._above = {}
        if (stack := self._above.get(node)) is None:
            stack = self._above[node] = _Stack(node, self)
        return stack

    def terminals(self) -> list["_Stack"]:
        """Lists the possible next steps: stacks with a terminal on top, or the end."""
        if self._terminals is None:
            tops: dict[_Stack, None] = {}
            seen: set[_Stack] = set()
            waiting = [self]
            while waiting:
                stack = waiting.pop()
                if stack not in seen:
                    seen.add(stack)
                    if stack.rest is None or isinstance(stack.node, Text | CharSet):
                        tops[stack] = None
                    else:
                        waiting += stack._expanded(stack.rest)
            self._terminals = list(tops)
        return self._terminals

    def _expanded(self, rest: "_Stack") -> list["_Stack"]:
        node = self.node
        if isinstance(node, Alternation):
            return [rest.push(part) for part in node.parts]
        if isinstance(node, Repeat):
            if not node.most:
                return [rest]
            once = rest.push(node.after()).push(node.item)
            return [once] if node.least else [once, rest]
        assert isinstance(node, Sequence)
        for part in reversed(node.parts):
            rest = rest.push(part)
        return [rest]

    def advance(self, char: str) -> "_Stack | None":
        """Returns the stack after a character; None when it is not allowed here."""
        node, rest = self.node, self.rest
        if rest is None:
            return None
        if isinstance(node, CharSet):
            return rest if node.has(char) else None
        assert isinstance(node, Text)
        if node.char != char:
            return None
        return rest if (after := node.after()) is None else rest.push(after)


class ParserState:
    """Position of an answer in all its parses."""

    def __init__(self, stacks: list[_Stack]) -> None:
        self._terminals = (
            stacks[0].terminals()
            if len(stacks) == 1
            else list(dict.fromkeys(top for stack in stacks for top in stack.terminals()))
        )
        # Bytes of the shortest completion, for which as many tokens suffice; infinite outside the
        # grammar.
        self.min_bytes = min((top.min_bytes for top in self._terminals), default=math.inf)

    @classmethod
    def start(cls, grammar: Grammar) -> "ParserState":
        """Returns the state before the first character."""
        return cls([_Stack(None, None).push(grammar.root)])

    def advance(self, text: str) -> "ParserState":
        """Returns the state after more text."""
        state = self
        for char in text:
            stacks = (top.advance(char) for top in state._terminals)
            state = ParserState([stack for stack in stacks if stack is not None])
        return state

    def completion(self) -> str:
        """Returns the shortest text that completes the answer."""
        out: list[str] = []
        stack: _Stack | None = min(self._terminals, key=lambda top: top.min_bytes)
        while stack is not None and stack.node is not None:
            waiting: list[Node] = [stack.node]
            while waiting:
                node = waiting.pop()
                if isinstance(node, Text):
                    out.append(node.text)
                elif isinstance(node, CharSet):
                    out.append(node.sample)
                elif isinstance(node, Alternation):
                    waiting.append(min(node.parts, key=lambda part: part.min_bytes))
                elif isinstance(node, Repeat):
                    waiting += [node.item] * node.least
                else:
                    waiting += reversed(node.parts)
            stack = stack.rest
        return "".join(out)
