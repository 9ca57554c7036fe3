"""LangChain's OpenAIEmbeddings at its defaults, which sends token ids.

Arguments: base URL, key, and the folder with tiktoken's copy of cl100k_base, which it would
download. Run by the interpreter of .venv-clients; prints what it read as one line of JSON.
"""

import json
import os
import sys
from typing import Any

os.environ["TIKTOKEN_CACHE_DIR"] = sys.argv[3]

from langchain_openai import OpenAIEmbeddings  # reads the folder when it is imported

from tests.clients.openai_texts import DOCUMENTS, QUERY


def see(base_url: str, key: str) -> dict[str, Any]:
    embeddings = OpenAIEmbeddings(base_url=base_url, api_key=key)
    plain = OpenAIEmbeddings(base_url=base_url, api_key=key, check_embedding_ctx_length=False)
    return {
        "documents": embeddings.embed_documents(DOCUMENTS),
        "query": embeddings.embed_query(QUERY),
        "texts": plain.embed_documents(DOCUMENTS),
        "many": len(embeddings.embed_documents([f"Document {n} " * 40 for n in range(200)])),
    }


sys.stdout.write(json.dumps(see(*sys.argv[1:3])) + "\n")
