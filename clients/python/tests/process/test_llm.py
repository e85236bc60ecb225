"""Language models: what is asked of an engine, what becomes of its answers, and its server in this process."""

import asyncio
import functools
import importlib.util
import json
import os
import sys
import types
import unittest
from typing import Union
from unittest import mock

import gpumux
from gpumux import llm
from gpumux.llm import Failed, Model, Refused, columns, fill, judged, requested
from gpumux.llm.meter import Meter
from gpumux.llm.stats import Stats

try:
    import fastapi
    import pydantic
except ImportError:
    fastapi = None

CHAT = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": []}}


class Requests(unittest.TestCase):
    def test_line_of_a_batch(self):
        self.assertEqual(requested(CHAT), ("/v1/chat/completions", {"messages": []}))
        self.assertEqual(requested({"url": "/score", "body": {"stream": False}}), ("/score", {"stream": False}))
        with self.assertRaisesRegex(Refused, "404 NoRequest: a request is for one of .*, not /load_model"):
            requested({"url": "/load_model", "body": {}})

    def test_what_is_no_request(self):
        for item, word in [
            (7, '"body"'), ("text", '"body"'), (None, '"body"'), ([CHAT], '"body"'), ({"text": "a row"}, "need a prompt"),
            ({**CHAT, "body": "{}"}, '"body"'), ({**CHAT, "url": None}, '"url"'), ({**CHAT, "method": "GET"}, "'GET'"),
            ({**CHAT, "body": {"stream": True}}, "body.stream"),
        ]:
            with self.subTest(item), self.assertRaises(Refused) as raised:
                requested(item)
            self.assertRegex(str(raised.exception), "^400 NoRequest: ")
            self.assertIn(word, str(raised.exception))

    def test_prompt(self):
        row = {"text": "zażółć {text}", "n": 2.5, "tags": ["a", "ż"], "deep": {"er": 1}, "nothing": None, "yes": True, "a.b": 1, "a b": 2}
        for prompt, want in [
            ("Say: {text}", "Say: zażółć {text}"), ("{n:.2f} {{n}}", "2.50 {n}"), ("{tags} {tags[1]} {deep[er]}", '["a", "ż"] ż 1'),
            ("none of it", "none of it"), ("{a.b} {a b}", "1 2"), ("({nothing}) {yes}", "() true"), ("{}", json.dumps(row, ensure_ascii=False)),
        ]:
            with self.subTest(prompt):
                self.assertEqual(fill(prompt, row), want)
        self.assertEqual(fill("{}, {}", "a row"), "a row, a row")
        self.assertEqual(fill("{2020} {order.items}", {"2020": 7, "order": {"items": "pens"}}), "7 pens", "a row's own before Python's")
        with self.assertRaisesRegex(Refused, "the prompt needs 'order.values'"):
            fill("{order.values}", {"order": {}})
        self.assertEqual(fill("{:>3}", 7), "  7")

    def test_prompt_that_does_not_fit_its_row(self):
        for prompt, row, words in [
            ("{text}", {"a": 1, "b": 2}, ["'text'", "the row has a, b;", "{{"]),
            ("{text}", "a row", ["'text'", "is no object; {} stands for all of it"]),
            ('{"a": 1}', {"b": 1}, ["'\"a\"'", "{{"]), ("{a[2]}", {"a": [1]}, ["'a[2]'"]), ("{a[b]}", {"a": {"c": 1}}, ["'a[b]'"]),
            ("{a.b}", {"a": 1}, ["'a.b'"]), ("{a[b]}", {"a": "text"}, ["'a[b]'"]),
            ("{a:.2f}", {"a": "text"}, ["does not fit the row", "format code"]),
        ]:
            with self.subTest(prompt), self.assertRaises(Refused) as raised:
                fill(prompt, row)
            self.assertRegex(str(raised.exception), "^400 NoRequest: ")
            for word in words:
                self.assertIn(word, str(raised.exception))


class Answers(unittest.TestCase):
    def test_columns(self):
        answer = {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
        self.assertEqual(columns(answer), {"text": "hello", "finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": 1})
        self.assertEqual(
            columns({"choices": [{"message": {}}], "usage": None}),
            {"text": None, "finish_reason": None, "prompt_tokens": None, "completion_tokens": None},
        )

    def test_bodies(self):
        self.assertEqual(judged(200, b'{"a": 1}', "/x"), {"a": 1})
        self.assertEqual(judged(201, b"[]", "/x"), [])

    def test_errors(self):
        for status, content, kind, words in [
            (400, b'{"error": {"message": "too\\n long", "type": "BadRequestError", "code": 400}}', Refused, "400 BadRequestError: too long"),
            (422, b'{"message": "no", "type": "E"}', Refused, "422 E: no"),
            (404, b'{"error": {"message": "no model x", "type": "NotFoundError"}}', Refused, "404 NotFoundError: no model x"),
            (404, b'{"detail": "Not Found"}', Refused, "404 Error: the engine has no POST /x for this model"),
            (405, b"", Refused, "405 Error: the engine has no POST /x for this model"),
            (403, b"not JSON", Refused, "403 Error: not JSON"),
            (500, b'{"error": "text"}', Failed, '500 Error: {"error": "text"}'),
            (503, b"\xff" * 9999, Failed, "503 Error: " + "\ufffd" * 500),
            (200, b"data: [DONE]", Failed, "200 Error: data: [DONE]"),
            (500, b"[]", Failed, "500 Error: []"),
        ]:
            with self.subTest(content), self.assertRaises(kind) as raised:
                judged(status, content, "/x")
            self.assertEqual(str(raised.exception), words)


class Meters(unittest.TestCase):
    def test_usage(self):
        meter = Meter()
        with mock.patch.object(llm.meter, "monotonic", side_effect=[0, 0, 4, 9, 15]):
            self.assertEqual(meter.look(2, {}), {"running": 2}, "nothing is known of the time before")
            self.assertEqual(meter.look(2, {}), {"running": 2})
            for body in [
                {"usage": {"prompt_tokens": 300, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}}},
                {"usage": {"input_tokens": 100, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 140}}},
                {"usage": {"prompt_tokens": 8, "completion_tokens": None, "prompt_tokens_details": None}},
                {"usage": None}, {"usage": [1]}, {"usage": {"prompt_tokens": "many", "prompt_tokens_details": 7}}, {}, [], None, "text",
            ]:
                meter.answered(body)
            rates = {"prompt_tokens_per_second": 102.0, "generation_tokens_per_second": 25.5}
            self.assertEqual(meter.look(3, {}), {"running": 3, **rates, "cache_hits": 0.5})
            meter.look(3, {})
            self.assertEqual(
                meter.look(1, {}), {"running": 1, "prompt_tokens_per_second": 0.0, "generation_tokens_per_second": 0.0}, "of the last seconds",
            )

    def test_an_engine_that_counts(self):
        meter, stats = Meter(), Stats()
        stats.log_engine_initialized()
        stats.record_sleep_state(0, 0)
        step = types.SimpleNamespace
        with mock.patch.object(llm.meter, "monotonic", side_effect=[0, 2]):
            meter.look(9, stats.load())
            meter.answered({"usage": {"prompt_tokens": 1000, "completion_tokens": 1000}})
            for engine, running in [(0, 8), (1, 3), (0, 6)]:
                scheduler = step(num_running_reqs=running, num_waiting_reqs=1, num_skipped_waiting_reqs=1, prefix_cache_stats=step(queries=40, hits=10))
                stats.record(scheduler, step(num_prompt_tokens=20, num_generation_tokens=7), mm_cache_stats=None, engine_idx=engine)
            stats.record(None, None, None, engine_idx=0)
            told = meter.look(9, stats.load())
        self.assertEqual(told, {
            "running": 9, "waiting": 4, "prompt_tokens_per_second": 30.0, "generation_tokens_per_second": 10.5, "cache_hits": 0.25,
            "vllm:num_requests_running": 9, "vllm:num_requests_waiting": 4, "vllm:prompt_tokens_total": 60, "vllm:generation_tokens_total": 21,
            "vllm:prefix_cache_queries_total": 120, "vllm:prefix_cache_hits_total": 30,
        })
        longest = json.dumps({name: 10**15 if isinstance(number, int) else 123456.7 for name, number in told.items()})
        self.assertLess(len(longest), 1024, "a worker keeps it whole")
        stats.record(step(num_running_reqs=1), None, engine_idx=0)  # of another version; the engine lives on
        with self.assertRaises(AttributeError):
            stats.load()


class Imitation:
    """An engine that answers from a list, and may be dead."""

    most = 5

    def __init__(self, model, settings):
        self.made, self.calls, self.answers, self.died = (model, settings), [], [], False

    async def start(self):
        self.calls.append("start")

    async def stop(self):
        self.calls.append("stop")

    def dead(self):
        return self.died

    async def answer(self, url, body):
        self.calls.append((url, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Mine(Model):
    engine = Imitation


class Task(unittest.TestCase):
    def setUp(self):
        concurrent = Model.__call__.__gpumux_concurrent__
        self.addCleanup(setattr, Model.__call__, "__gpumux_concurrent__", concurrent)

    def model(self, **arg):
        with mock.patch.object(gpumux, "_arg", [{"model": "m", **arg}]):
            return Mine()

    def test_arg(self):
        for arg, words in [
            (None, "gpumux llm --model NAME"), ([], "name a model"), ({}, "name a model"), ({"model": 7}, "name a model"),
            ({"model": "m", "temperature": 0, "max": 1}, "--arg has max, temperature"), ({"model": "m", "settings": "a=b"}, "settings"),
            ({"model": "m", "request": [1]}, "request"), ({"model": "m", "prompt": 7}, "prompt"), ({"model": "m", "engine": 7}, "engine"),
            ({"model": "m", "prompt": "a { b"}, "prompt.*{{"), ({"model": "m", "request": {"stream": True}}, "stream"),
        ]:
            with self.subTest(arg), mock.patch.object(gpumux, "_arg", [arg]), mock.patch.object(llm, "_engine") as engine:
                with self.assertRaisesRegex(ValueError, words):
                    Model()
                engine.assert_not_called()

    def test_whole(self):
        model = self.model(settings={"a": 1}, request={"temperature": 0, "n": 1})
        engine = model._engine
        self.assertEqual(engine.made, ("m", {"a": 1}))
        engine.answers = [(200, b'{"id": 1}'), (400, b'{"message": "no"}'), RuntimeError("broke")]

        async def whole():
            async with model:
                self.assertEqual(Model.__call__.__gpumux_concurrent__, 5, "the engine says how many run at a time")
                self.assertEqual(await model({**CHAT, "body": {"n": 2, "messages": []}}), {"id": 1})
                with self.assertRaises(Refused):
                    await model({**CHAT, "body": {"model": "adapter"}})
                with self.assertRaisesRegex(RuntimeError, "broke"):
                    await model(CHAT)

        asyncio.run(whole())
        url = CHAT["url"]
        self.assertEqual(engine.calls, [
            "start", (url, {"temperature": 0, "n": 2, "messages": []}), (url, {"model": "adapter", "temperature": 0, "n": 1}),
            (url, {"temperature": 0, "n": 1, "messages": []}), "stop",
        ])

    def test_what_it_tells(self):
        model = self.model()
        engine, told, news = model._engine, [], asyncio.Event()
        tick, answered = asyncio.Event(), asyncio.Event()

        async def answer(url, body):
            await answered.wait()
            return 200, b'{"usage": {"prompt_tokens": 3}}'

        async def passes(seconds):
            self.assertEqual(seconds, 1)
            news.set()
            await tick.wait()
            tick.clear()

        async def second():
            await news.wait()
            news.clear()
            tick.set()
            await news.wait()

        engine.answer, engine.load = answer, lambda: {"waiting": 1, "own": 2}

        async def whole():
            async with model:
                await second()
                self.assertEqual(told, [], "nothing without a request")
                request = asyncio.create_task(model(CHAT))
                await second()
                self.assertEqual(told, [{"running": 1, "waiting": 1, "own": 2}])
                answered.set()
                await request
                await second()
                self.assertEqual(len(told), 1)

        with mock.patch.object(llm.asyncio, "sleep", passes), mock.patch.object(gpumux, "progress", told.append):
            asyncio.run(whole())

    def test_a_load_that_raises(self):
        model = self.model()
        model._engine.load = mock.Mock(side_effect=KeyError("gone"))
        model._requests = 1
        with mock.patch.object(llm.asyncio, "sleep", mock.AsyncMock()), mock.patch("sys.stderr") as stderr:
            asyncio.run(model._tell())
        self.assertIn("the engine's load is not shown any more: KeyError('gone')", str(stderr.write.call_args_list))

    def test_how_many_at_a_time(self):
        for most in (0, None, "many", True, -1):
            model = self.model()
            model._engine.most = most
            with self.assertRaisesRegex(ValueError, "the engine's most is .*; give how many requests"):
                asyncio.run(model.__aenter__())

    def test_rows(self):
        model = self.model(prompt="Say {text}")
        model._engine.answers = [(200, b'{"choices": [{"message": {"content": "hi"}}]}')]
        self.assertEqual(asyncio.run(model({"text": "hi"}))["text"], "hi")
        self.assertEqual(model._engine.calls, [(llm.CHAT, {"messages": [{"role": "user", "content": "Say hi"}]})])

    def test_dead_engine_ends_its_process(self):
        for answer in [(500, b"engine died"), RuntimeError("engine died")]:
            model = self.model()
            model._engine.died, model._engine.answers = True, [answer]
            with mock.patch.object(os, "_exit", side_effect=SystemExit) as end, mock.patch("sys.stderr") as stderr:
                with self.assertRaises(SystemExit):
                    asyncio.run(model(CHAT))
            end.assert_called_once_with(70)
            self.assertIn("engine died", str(stderr.write.call_args_list))

    def test_engines(self):
        with self.assertRaisesRegex(ValueError, "Mine has an engine of its own; leave --engine out"):
            self.model(engine="vllm")
        with self.assertRaisesRegex(ValueError, "no engine 'vlm'; write vllm or transformers or llama"):
            llm._engine("vlm")
        with mock.patch.dict(llm.ENGINES, {"vllm": "no_such_package", "llama": "nor_this", "transformers": "nor_that"}):
            for name, missing in [
                ("vllm", "the engine vllm is not .* install no_such_package there"),
                (None, "no engine is .* install vllm, transformers or xllamacpp there"),
            ]:
                with self.assertRaisesRegex(ModuleNotFoundError, missing) as raised:
                    llm._engine(name)
                self.assertIn(sys.executable, str(raised.exception))
                self.assertIn("--python", str(raised.exception))
        # The first of those that are installed, though others lack more than their own package.
        with mock.patch.dict(llm.ENGINES, {"vllm": "no_such_package", "transformers": "nor_that", "llama": "own_engine"}):
            module = types.ModuleType("gpumux.llm.llama")
            module.Engine = Imitation
            package = types.ModuleType("own_engine")
            package.__spec__ = importlib.util.spec_from_loader("own_engine", None)
            with mock.patch.dict(sys.modules, {"gpumux.llm.llama": module, "own_engine": package}):
                self.assertIs(llm._engine(None), Imitation)
        with mock.patch.dict(llm.ENGINES, vllm="json"), mock.patch.dict(sys.modules, vllm=None), self.assertRaises(ModuleNotFoundError) as raised:
            llm._engine("vllm")
        self.assertRegex(raised.exception.name, "^vllm", "one that cannot be imported says why")

    def test_a_model_that_nobody_can_change(self):
        class Ours(Mine):
            model, settings = "ours", {"a": 1}

        for arg in (None, {}, {"model": "ours"}, {"request": {"n": 1}}):
            with mock.patch.object(gpumux, "_arg", [arg]):
                self.assertEqual(Ours()._engine.made, ("ours", {"a": 1}))
        for arg in ({"model": "theirs"}, {"settings": {"trust_remote_code": True}}, {"engine": "vllm"}):
            with mock.patch.object(gpumux, "_arg", [arg]), self.assertRaisesRegex(ValueError, "Ours is 'ours' with settings of its own"):
                Ours()


if fastapi:
    from gpumux.llm.served import Served, post

    class Body(pydantic.BaseModel):
        # As vLLM's models are: fields that they do not know are kept, and ignored.
        model_config = pydantic.ConfigDict(extra="allow", populate_by_name=True)
        model: str = ""
        text: Union[str, int] = ""
        schema_: str = pydantic.Field("", alias="schema")
        n: int = pydantic.Field(1, ge=1)

    class Alias(pydantic.BaseModel):
        by: str = pydantic.Field("", alias="from")
        late: str = pydantic.Field("", validation_alias="soon")

    class Texts(pydantic.BaseModel):
        texts: list

    class Own(Exception):
        pass

    def application():
        app, calls = fastapi.FastAPI(), []

        @app.middleware("http")
        async def middleware(request, go_on):
            calls.append("middleware")
            return await go_on(request)

        @app.exception_handler(Own)
        async def handle(request, error):
            return fastapi.responses.JSONResponse({"error": {"message": str(error), "type": "Own"}}, 409)

        @app.exception_handler(fastapi.exceptions.RequestValidationError)
        async def invalid(request, error):
            return fastapi.responses.JSONResponse({"error": {"message": "invalid: " + str(error.errors()[0]["msg"]), "type": "BadRequestError"}}, 400)

        def around(function):
            @functools.wraps(function)
            async def outer(*args, **kwargs):
                calls.append("around")
                return await function(*args, **kwargs)

            return outer

        def checked(request: fastapi.Request):
            calls.append("dependency")

        @app.get("/chat")
        async def look():
            return "for people"

        @app.post("/chat", dependencies=[fastapi.Depends(checked)])
        @around
        @around
        async def chat(request: Body, raw_request: fastapi.Request):
            assert raw_request.app is app and raw_request.headers["content-type"] == "application/json"
            calls.append("chat")
            if request.text == "raise":
                raise Own("no more")
            return fastapi.responses.JSONResponse({"said": request.text, "schema": request.schema_}, 202 if request.text == "later" else 200)

        @app.post("/either")
        async def either(request: Union[Body, Texts], raw_request: fastapi.Request):
            return fastapi.responses.JSONResponse({"kind": type(request).__name__})

        @app.post("/alias")
        async def alias(request: Alias, raw_request: fastapi.Request):
            return fastapi.responses.JSONResponse([request.by, request.late])

        @app.post("/more")
        async def more(request: Body, raw_request: fastapi.Request, who=fastapi.Depends(lambda: "injected")):
            return fastapi.responses.JSONResponse({"who": who})

        @app.post("/sync")
        def sync(request: Body, raw_request: fastapi.Request):
            calls.append("sync")
            return {"said": request.text}

        @app.post("/stream")
        async def stream(request: Body, raw_request: fastapi.Request):
            return fastapi.responses.StreamingResponse(iter([b'{"a"', b": 1}"]))

        router = fastapi.APIRouter()

        @router.post("/routed")
        async def routed(request: Body, raw_request: fastapi.Request):
            return fastapi.responses.JSONResponse({"routed": True})

        app.include_router(router)
        return app, calls


@unittest.skipUnless(fastapi, "needs FastAPI")
class Server(unittest.TestCase):
    def setUp(self):
        self.app, self.calls = application()
        self.served = Served(self.app)

    def answer(self, url, body):
        self.calls.clear()
        status, content = asyncio.run(self.served.answer(url, body))
        return status, json.loads(content)

    def test_short_way(self):
        self.assertEqual(self.answer("/chat", {"text": "hi", "schema": "s"}), (200, {"said": "hi", "schema": "s"}))
        self.assertEqual(self.calls, ["chat"], "nothing of what surrounds the innermost function")
        self.assertEqual(self.answer("/chat", {"text": "later", "schema_": "s"}), (202, {"said": "later", "schema": "s"}))
        self.assertEqual(self.answer("/routed", {"text": "hi"}), (200, {"routed": True}))
        self.assertNotIn("middleware", self.calls)

    def test_long_way(self):
        self.assertEqual(asyncio.run(post(self.app, "/chat", {"text": "hi"})), (200, b'{"said":"hi","schema":""}'))
        self.assertEqual(self.calls, ["middleware", "dependency", "around", "around", "chat"])
        self.assertEqual(self.answer("/more", {}), (200, {"who": "injected"}))
        self.assertEqual(self.calls, ["middleware"])
        self.assertEqual(self.answer("/sync", {"text": "hi"}), (200, {"said": "hi"}))
        self.assertEqual(self.calls, ["middleware", "sync"], "once")
        self.assertEqual(self.answer("/stream", {}), (200, {"a": 1}))

    def test_fields_that_are_unknown(self):
        with self.assertRaises(Refused) as raised:
            self.answer("/chat", {"text": "hi", "temprature": 0, "extra": 1})
        self.assertEqual(
            str(raised.exception),
            "400 UnknownField: the engine's POST /chat has no extra, temprature, and would ignore it; it has model, n, schema, schema_, text",
        )
        self.assertEqual(self.calls, [])

    def test_names_of_fields(self):
        self.assertEqual(self.answer("/alias", {"from": "a", "soon": "b"}), (200, ["a", "b"]))
        for name in ["by", "late"]:  # which the server ignores
            with self.subTest(name), self.assertRaisesRegex(Refused, f"has no {name}, .* it has from, soon"):
                self.answer("/alias", {name: "a"})

    def test_invalid(self):
        status, body = self.answer("/chat", {"n": 0})
        self.assertEqual((status, body["error"]["type"]), (400, "BadRequestError"))
        self.assertIn("greater than or equal to 1", body["error"]["message"], "in the server's own words")
        self.assertEqual(self.calls, ["middleware", "dependency"])

    def test_raised(self):
        self.assertEqual(self.answer("/chat", {"text": "raise"}), (409, {"error": {"message": "no more", "type": "Own"}}))

    def test_union(self):
        self.assertEqual(self.answer("/either", {"text": "a"}), (200, {"kind": "Body"}))
        self.assertEqual(self.answer("/either", {"texts": []}), (200, {"kind": "Texts"}))
        with self.assertRaisesRegex(Refused, "has no txt, .* texts"):
            self.answer("/either", {"txt": "a"})

    def test_not_there(self):
        self.assertEqual(self.answer("/nowhere", {"any": "thing"})[0], 404)
        self.assertEqual(self.calls, ["middleware"])

    def test_many_at_a_time(self):
        async def many():
            return await asyncio.gather(*(self.served.answer("/chat", {"text": str(i)}) for i in range(50)))

        self.assertEqual([json.loads(content)["said"] for _, content in asyncio.run(many())], [str(i) for i in range(50)])
