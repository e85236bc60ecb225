"""The ways without gpumux: python ways.py WAY PIPELINE ITEMS.json RESULTS.jsonl writes the values in the order of the items."""

import json
import sys

import numpy
import steps


def by_hand(pipeline, items):
    """Processes with a queue between each two steps; a batch is what has come, and at least one item."""
    import multiprocessing
    import queue
    import threading

    def work(step, inbox, outbox, ended, sources):
        call, more = step.call(), True
        while more:
            batch = []
            try:
                while len(batch) < step.batch:
                    one = inbox.get(block=not batch)
                    if one is not None:
                        batch.append(one)
                        continue
                    with ended:  # one more of the step before
                        ended.value += 1
                        if ended.value >= sources:
                            more = False
                            inbox.put(None)  # for the others of this step
                            break
            except queue.Empty:
                pass
            values = [value for _, value in batch]
            found = call(values) if step.batch > 1 and batch else map(call, values)
            for (index, _), value in zip(batch, found):
                outbox.put((index, value))
        outbox.put(None)

    context = multiprocessing.get_context("fork")
    queues = [context.Queue(128) for _ in range(len(pipeline.steps) + 1)]
    counts = [context.Value("i", 0) for _ in pipeline.steps]  # kept, or two would share their memory
    sources = 1
    for step, inbox, outbox, ended in zip(pipeline.steps, queues, queues[1:], counts):
        for _ in range(step.processes):
            context.Process(target=work, args=(step, inbox, outbox, ended, sources), daemon=True).start()
        sources = step.processes

    def feed():
        for pair in [*enumerate(items), None]:
            queues[0].put(pair)

    threading.Thread(target=feed, daemon=True).start()
    found = {}
    while sources:
        pair = queues[-1].get()
        if pair is None:
            sources -= 1
        else:
            found[pair[0]] = pair[1]
    return found


class Call:
    """A step as Ray calls it: with a row, or with columns of rows."""

    def __init__(self, name, at):
        self.step = steps.PIPELINES[name].steps[at]
        self.call = self.step.call()

    def __call__(self, row):
        if self.step.batch > 1:
            return {"index": row["index"], "value": self.call(list(row["value"]))}
        return {"index": row["index"], "value": self.call(row["value"])}


def ray(pipeline, items, name):
    import ray

    processes = sum(step.processes for step in pipeline.steps)
    # Besides the processors of the machine, each actor takes one, and so do the tasks that read.
    ray.init(num_cpus=processes + 2, include_dashboard=False, log_to_driver=False, logging_level="error")
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items([{"index": index, "value": item} for index, item in enumerate(items)])
    for at, step in enumerate(pipeline.steps):
        how = {"compute": ray.data.ActorPoolStrategy(size=step.processes), "fn_constructor_args": (name, at)}
        rows = rows.map_batches(Call, batch_size=step.batch, **how) if step.batch > 1 else rows.map(Call, **how)
    return {row["index"]: row["value"] for row in rows.iter_rows()}


def daft(pipeline, items, name):
    import daft
    from daft import DataType

    rows = daft.from_pydict({"index": list(range(len(items))), "value": items})
    for step in pipeline.steps:
        kind = {"decode": DataType.tensor(DataType.uint8(), (224, 224, 3)), "Embed": DataType.embedding(DataType.float32(), 64)}
        kind = kind.get(step.name, DataType.int64())

        class Call:
            def __init__(self, step):
                self.batch, self.call = step.batch, step.call()

            @daft.method.batch(return_dtype=kind, batch_size=max(step.batch, 8))
            def all(self, values):
                values = values.to_pylist()
                return list(self.call(values)) if self.batch > 1 else [self.call(value) for value in values]

        made = daft.cls(Call, max_concurrency=step.processes, use_process=True)(step)
        rows = rows.with_column("value", made.all(rows["value"]))
    found = rows.to_pydict()
    return dict(zip(found["index"], found["value"]))


if __name__ == "__main__":
    _, way, name, path, out = sys.argv
    pipeline = steps.PIPELINES[name]
    with open(path) as file:
        items = json.load(file)
    found = by_hand(pipeline, items) if way == "by hand" else {"ray": ray, "daft": daft}[way](pipeline, items, name)
    with open(out, "w") as file:
        for index in range(len(items)):
            file.write(json.dumps({"index": index, "value": numpy.asarray(found[index]).tolist()}) + "\n")
