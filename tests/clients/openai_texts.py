"""Inputs and expected results of the scripts that run clients of OpenAI's API."""

MODEL = "svc/echo"  # echoes the prompt, tool calls included
TEXT = "héllo 😀 big world"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
WEATHER = "fine in Oslo"
OBJECT = '{"name": "Ada", "age": 36}'
PERSON_CALL = f'<tool_call>\n{{"name": "Person", "arguments": {OBJECT}}}\n</tool_call>'
HEARD = "the quick brown fox"  # the transcript of the scripted recogniser for all speech
DOCUMENTS = ["The weather is lovely today.", "He drove to the stadium. 😀"]
QUERY = "It's so sunny outside!"
