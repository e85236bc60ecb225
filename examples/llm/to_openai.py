"""Turns results of a map with `--key custom_id` into OpenAI's batch output: python to_openai.py results.jsonl output.jsonl errors.jsonl

A request that the model refused has status 400 and its message; one that failed otherwise has the kind of its fault as error.
"""

import json
import sys


def main(results, output, errors):
    counts = [0, 0]
    with open(results, encoding="utf-8") as lines, open(output, "w", encoding="utf-8") as good, open(errors, "w", encoding="utf-8") as bad:
        for line in lines:
            result = json.loads(line)
            failed = "fault" in result
            json.dump(row(result), bad if failed else good, ensure_ascii=False, separators=(",", ":"))
            (bad if failed else good).write("\n")
            counts[failed] += 1
    print(f"{counts[0]} completed, {counts[1]} failed")


def row(result):
    """A line of the output: https://platform.openai.com/docs/api-reference/batch/request-output"""
    identity = f"batch_req_{result['index']}"
    line = {"id": identity, "custom_id": result.get("key"), "response": None, "error": None}
    fault = result.get("fault")
    if fault is None:
        body = {"id": f"chatcmpl-{result['index']}", **result["value"]}
        line["response"] = {"status_code": 200, "request_id": identity, "body": body}
    elif str(fault.get("class", "")).rpartition(".")[2] == "Refused":
        error = {"message": fault["message"], "type": "invalid_request_error", "param": None, "code": None}
        line["response"] = {"status_code": 400, "request_id": identity, "body": {"error": error}}
    else:
        line["error"] = {"code": fault["kind"], "message": fault.get("message", "")}
    return line


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__.splitlines()[0])
    main(*sys.argv[1:])
