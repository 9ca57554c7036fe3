"""What the clients of OpenAI's API are given to say and to call, in their scripts and tests."""

MODEL = "svc/echo"  # says back what it is told, and calls what it is told to call
TEXT = "héllo 😀 big world"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
WEATHER = "fine in Oslo"
OBJECT = '{"name": "Ada", "age": 36}'
PERSON_CALL = f'<tool_call>\n{{"name": "Person", "arguments": {OBJECT}}}\n</tool_call>'
HEARD = "the quick brown fox"  # what the scripted recogniser hears in all speech
