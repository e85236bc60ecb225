"""Starts a map from Python with the official Temporal SDK: the workflow's name and a JSON input are all it takes.

    python start.py TASK ITEM...      every ITEM is a JSON value
"""

import asyncio
import json
import os
import sys
import uuid

from temporalio.client import Client, WorkflowFailureError

from gpumux_types import MapInput, Progress, Summary


async def main(task, items):
    client = await Client.connect(
        os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"), namespace=os.environ.get("TEMPORAL_NAMESPACE", "default")
    )
    # The types are made of docs/schema; an editor or mypy finds a misspelt field.
    given: MapInput = {"task": task, "items": [json.loads(item) for item in items], "ladder": ["cpu"]}
    handle = await client.start_workflow(
        "gpumux.Map", given, id=f"polyglot-{uuid.uuid4()}", task_queue="gpumux", result_type=Summary
    )
    try:
        summary = await handle.result()
    except WorkflowFailureError as failure:
        # What ends a whole map is an ApplicationError whose type is the fault's kind.
        print(failure.cause.message, file=sys.stderr)
        return 1
    for result in summary.get("results", []):
        fault = result.get("fault")
        print(f"{fault['kind']}: {fault['message']}" if fault else json.dumps(result["value"], ensure_ascii=False))

    progress = await handle.query("progress", result_type=Progress)
    print(f"{progress['succeeded']} of {progress['items']} succeeded, phase {progress['phase']}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    status = asyncio.run(main(sys.argv[1], sys.argv[2:]))
    # Threads of the SDK may crash Python while it shuts down, when all is said; so leave without a shutdown.
    sys.stdout.flush()
    os._exit(status)
