package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
	"github.com/gpumux/gpumux/test/programtest"
)

// enginePy is an engine without a model. It repeats the last message, refuses one of more
// words than max_model_len, and notes each that it answers in the file calls.
const enginePy = `
import asyncio, json, os, signal
here = os.path.dirname(os.path.abspath(__file__))

def there(name):
    return os.path.exists(os.path.join(here, name))

class Imitation:
    most = 8

    def __init__(self, model, settings):
        self.context, self.died = settings.get("max_model_len", 64), False

    async def start(self):
        with open(os.path.join(here, "started"), "a") as f: f.write("once\n")
        self.started = True

    async def stop(self):
        with open(os.path.join(here, "stopped"), "a") as f: f.write("once\n")

    def dead(self):
        return self.died

    async def answer(self, url, body):
        assert self.started
        if url != "/v1/chat/completions":
            return 404, b'{"detail":"Not Found"}'
        text = body["messages"][-1]["content"]
        words = text.split()
        if text == "poison":
            self.died = True
            return 500, b'{"error":{"message":"the engine broke","type":"EngineDeadError"}}'
        if text == "raise":
            raise RuntimeError("no answer")
        if text == "variables":
            text = " ".join(sorted(name for name in os.environ if name.startswith(("HF_", "VLLM_", "OTHER_"))))
        if text == "die" and not there("died"):
            with open(os.path.join(here, "died"), "w"): pass
            os.kill(os.getpid(), signal.SIGKILL)
        while text == "wait" and not there("open"):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        if len(words) > self.context and not there("fixed"):
            return 400, json.dumps({"error": {"message": f"{len(words)} tokens, and the context has {self.context}", "type": "BadRequestError"}}).encode()
        with open(os.path.join(here, "calls"), "a") as f: f.write(f"{(words or [''])[-1]}\n")
        usage = {"prompt_tokens": len(words), "completion_tokens": len(words) + 1}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        asked = {name: value for name, value in body.items() if name != "messages"}
        return 200, json.dumps({"choices": [choice], "usage": usage, "asked": asked}).encode()

import gpumux.llm

class Mine(gpumux.llm.Model):
    engine = Imitation
`

// llm is a folder with an engine of one's own.
type llm struct{ *shell }

func newLLM(t *testing.T) *llm {
	t.Helper()
	t.Parallel()
	l := &llm{newShell(t)}
	l.write("engine.py", enginePy)
	return l
}

// here are the words of a command that asks the engine on this machine.
func (l *llm) here(more ...string) []string {
	python := filepath.Join(venv(l.t), "bin", "python")
	return append([]string{"llm", "--model", "some/model", "--task", "engine.py:Mine", "--local", "--python", python}, more...)
}

func chat(id, content string) string {
	return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":%q}]}}`+"\n", id, content)
}

// response is a line of the output of a batch.
type response struct {
	ID       string  `json:"id"`
	CustomID *string `json:"custom_id"`
	Response *struct {
		Status    int    `json:"status_code"`
		RequestID string `json:"request_id"`
		Body      struct {
			Choices []struct{ Message struct{ Content string } }
			Usage   map[string]int
			Asked   json.RawMessage
			Error   struct {
				Message, Type string
				Code          int
			}
		} `json:"body"`
	} `json:"response"`
	Error *struct{ Code, Message string } `json:"error"`
}

// content is that of a response that succeeded.
func (r response) content() string {
	if r.Response == nil || len(r.Response.Body.Choices) == 0 {
		return ""
	}
	return r.Response.Body.Choices[0].Message.Content
}

func (l *llm) responses(text string) (all []response) {
	l.t.Helper()
	for line := range strings.Lines(text) {
		var r response
		var loose map[string]json.RawMessage
		require.NoError(l.t, json.Unmarshal([]byte(line), &loose), line)
		require.Len(l.t, loose, 4, line)
		require.NoError(l.t, json.Unmarshal([]byte(line), &r), line)
		require.Equal(l.t, fmt.Sprintf("batch_req_%d", len(all)), r.ID)
		require.NotEqual(l.t, r.Response == nil, r.Error == nil, line)
		all = append(all, r)
	}
	return all
}

// A batch file comes back in order, each row with its answer or what is wrong with it.
// With --retry only those run again that failed.
func TestLLM_Batch(t *testing.T) {
	l := newLLM(t)
	long := strings.Repeat("long ", 9) + "b"
	l.write("requests.jsonl", chat("a", "hello a")+chat("b", long)+`{"text":"a row"}`+"\n"+chat("a", "twice")+
		strings.Replace(chat("", "nameless"), `"custom_id":"",`, "", 1)+strings.Replace(chat("get", "x"), "POST", "GET", 1)+
		strings.Replace(chat("where", "x"), "/v1/chat/completions", "/v1/embeddings", 1)+chat("broken", "raise")+
		strings.Replace(chat("own", "own"), `"body":{`, `"body":{"temperature":1,"stop":null,`, 1))
	args := l.here("requests.jsonl", "--out", "out.jsonl", "--setting", "max_model_len=8", "--request", "temperature=0", "--request", "user=joe",
		"--request", `stop=["."]`)
	l.run(1, args...)
	got := l.responses(l.file("out.jsonl"))
	require.Len(t, got, 9)
	for i, want := range []struct {
		id     string
		status int
		says   string
	}{
		{"a", 200, "hello a"},
		{"b", 400, "BadRequestError: 10 tokens, and the context has 8"},
		{"-", 400, `NoRequest: the line is no request: it needs "url", "body" and "custom_id"; rows of other forms need a prompt`},
		{"a", 200, "twice"},
		{"-", 200, "nameless"},
		{"get", 400, "NoRequest: its method is 'GET', and a batch has POST alone"},
		{"where", 404, "Error: the engine has no POST /v1/embeddings for this model"},
		{"broken", 0, "no answer"},
		{"own", 200, "own"},
	} {
		r := got[i]
		if want.id == "-" {
			require.Nil(t, r.CustomID)
		} else {
			require.Equal(t, want.id, *r.CustomID)
		}
		if want.status == 0 {
			require.Equal(t, []string{"task_error", want.says}, []string{r.Error.Code, r.Error.Message})
			continue
		}
		require.Equal(t, want.status, r.Response.Status)
		require.Equal(t, r.ID, r.Response.RequestID)
		if want.status == 200 {
			require.Equal(t, want.says, r.content())
		} else {
			require.Equal(t, want.says, r.Response.Body.Error.Type+": "+r.Response.Body.Error.Message)
			require.Equal(t, want.status, r.Response.Body.Error.Code)
		}
	}
	require.JSONEq(t, `{"temperature":0,"user":"joe","stop":["."]}`, string(got[0].Response.Body.Asked))
	require.JSONEq(t, `{"temperature":1,"user":"joe","stop":null}`, string(got[8].Response.Body.Asked), "what the request says goes")
	require.Equal(t, map[string]int{"prompt_tokens": 2, "completion_tokens": 3}, got[0].Response.Body.Usage)
	require.Equal(t, "once\n", l.file("started"))
	require.Equal(t, "once\n", l.file("stopped"))

	l.write("some.jsonl", chat("a", "first")+chat("b", long)+chat("c", "third"))
	args = l.here("some.jsonl", "--out", "some.out.jsonl", "--setting", "max_model_len=8", "--id", "some")
	l.run(1, args...)
	l.write("fixed", "")
	l.run(0, append(args, "--retry")...)
	require.Equal(t, long, l.responses(l.file("some.out.jsonl"))[1].content())
	require.Equal(t, []int{1, 1, 1}, []int{l.calls()["first"], l.calls()["b"], l.calls()["third"]})
}

// Rows of a table are asked by a prompt, and answers are columns.
func TestLLM_Rows(t *testing.T) {
	l := newLLM(t)
	l.write("rows.csv", "id,text,n\n7,\"hello, {you}\",1.5\n8,,2\n9,raise,3\n")
	p := l.run(0, l.here("rows.csv", "--prompt", "{{{n}}}: {text}", "--key", "id", "--out", "answers.parquet")...)
	require.Contains(t, p.stderr.String(), "succeeded  3")
	l.run(0, "map", "--in", "answers.parquet", "--local", "--out", "rows.jsonl", "--", "cat")
	rows := l.lines(l.file("rows.jsonl"))
	for i, want := range []string{
		`{"index":0,"key":7,"text":"{1.5}: hello, {you}","finish_reason":"stop","prompt_tokens":3,"completion_tokens":4,"fault":null,"fault_message":null}`,
		`{"index":1,"key":8,"text":"{2}: ","finish_reason":"stop","prompt_tokens":1,"completion_tokens":2,"fault":null,"fault_message":null}`,
		`{"index":2,"key":9,"text":"{3}: raise","finish_reason":"stop","prompt_tokens":2,"completion_tokens":3,"fault":null,"fault_message":null}`,
	} {
		require.JSONEq(t, want, string(rows[i]["value"]))
	}

	l.write("rows.jsonl", `{"a":{"b":1},"text":"one"}`+"\n"+`{"a":[1]}`+"\n"+`"text"`+"\n")
	l.run(1, l.here("rows.jsonl", "--prompt", "{text} {a}", "--out", "r.jsonl")...)
	got := l.lines(l.file("r.jsonl"))
	require.JSONEq(t, `{"text":"one {\"b\": 1}","finish_reason":"stop","prompt_tokens":3,"completion_tokens":4}`, string(got[0]["value"]))
	require.Contains(t, string(got[1]["fault"]), "the prompt needs 'text', and the row has a")
	require.Contains(t, string(got[2]["fault"]), "the row is no object; {} stands for all of it")

	p = l.run(2, l.here("rows.csv", "--prompt", "{text", "--out", "r.jsonl")...)
	require.Contains(t, p.stderr.String(), "ValueError: prompt: expected '}' before end of string; write {{ and }} for braces that are text")
	p = l.run(2, l.here("rows.csv", "--out", "r.jsonl")...)
	require.Contains(t, p.stderr.String(), "rows of another form need --prompt of gpumux llm")
}

// An engine that dies fails no request, and none is asked twice that was answered before.
func TestLLM_EngineThatDies(t *testing.T) {
	l := newLLM(t)
	var requests strings.Builder
	for i := range 100 {
		content := fmt.Sprintf("request r%d", i)
		if i == 40 {
			content = "die"
		}
		requests.WriteString(chat(fmt.Sprintf("r%d", i), content))
	}
	l.write("requests.jsonl", requests.String())
	l.run(0, l.here("requests.jsonl", "--out", "out.jsonl", "--option", "chunk=100")...)
	require.FileExists(t, l.path("died"))
	got := l.responses(l.file("out.jsonl"))
	require.Len(t, got, 100)
	for i, r := range got {
		require.Equal(t, fmt.Sprintf("r%d", i), *r.CustomID)
		require.Equal(t, 200, r.Response.Status)
		require.Contains(t, []string{fmt.Sprintf("request r%d", i), "die"}, r.content())
	}
	require.Equal(t, "die", got[40].content())
	for word, n := range l.calls() {
		require.LessOrEqual(t, n, 2, word)
	}
	require.Equal(t, 1, l.calls()["r0"])
	require.Equal(t, 1, l.calls()["r99"])
}

// A request of which the engine dies whenever it is asked is found among the others.
func TestLLM_RequestThatKills(t *testing.T) {
	l := newLLM(t)
	l.write("requests.jsonl", chat("a", "one")+chat("b", "two")+chat("c", "poison")+chat("d", "four"))
	l.run(1, l.here("requests.jsonl", "--out", "out.jsonl")...)
	got := l.responses(l.file("out.jsonl"))
	require.Equal(t, []string{"one", "two", "", "four"}, []string{got[0].content(), got[1].content(), got[2].content(), got[3].content()})
	require.Equal(t, "crash", got[2].Error.Code)
	require.Contains(t, got[2].Error.Message, "exit status 70: the engine is dead, and its process ends: ")
	require.Contains(t, got[2].Error.Message, "the engine broke")
	require.Greater(t, strings.Count(l.file("started"), "once"), 1)
}

// What Ctrl-C or a kill stops goes on by the same command. Other settings: another map.
func TestLLM_GoesOn(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"Interrupt": syscall.SIGINT, "Kill": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			l := newLLM(t)
			l.write("requests.jsonl", chat("a", "one")+chat("b", "wait")+chat("c", "three")+chat("d", strings.Repeat("long ", 400_000)))
			args := l.here("requests.jsonl", "--out", "out.jsonl", "--setting", "max_model_len=1000000")
			p := l.begin(args...)
			rig.Wait(t, func() bool { return storedItems(t, l.path("state/gpumux/local/*/store")) == 3 }, time.Minute, 20*time.Millisecond)
			require.NoError(t, p.Process.Signal(signal))
			require.Equal(t, map[bool]int{true: 130, false: -1}[signal == syscall.SIGINT], p.code(), &p.stderr)
			rig.Wait(t, func() bool { return len(children(t, l.dir)) == 0 }, time.Minute, 20*time.Millisecond)
			l.write("open", "")
			require.Contains(t, l.run(0, args...).stderr.String(), "going on with map")
			require.Len(t, l.responses(l.file("out.jsonl")), 4)
			require.Equal(t, map[string]int{"one": 1, "wait": 1, "three": 1, "long": 1}, l.calls())

			l.run(0, l.here("requests.jsonl", "--out", "out.jsonl", "--setting", "max_model_len=1000001")...)
			require.Equal(t, 2, l.calls()["one"])
		})
	}
}

// What is no file of requests is found before an engine starts; compressed ones and empty
// ones are fine. The engine has those variables that are its own.
func TestLLM_Files(t *testing.T) {
	l := newLLM(t)
	l.env = append(l.env, "HF_TOKEN=secret", "VLLM_X=1", "OTHER_TOKEN=x")
	l.write("requests.jsonl", chat("a", "variables"))
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	_, err := to.Write([]byte(l.file("requests.jsonl")))
	require.NoError(t, errors.Join(err, to.Close()))
	l.write("requests.jsonl.gz", packed.String())
	p := l.run(0, l.here("requests.jsonl.gz", "--out", "-")...)
	require.Equal(t, "HF_TOKEN VLLM_X", l.responses(p.stdout.String())[0].content())
	require.NotContains(t, p.stderr.String(), "HF_TOKEN")

	l.write("empty.jsonl", "")
	l.run(0, l.here("empty.jsonl", "--out", "none.jsonl")...)
	require.Empty(t, l.file("none.jsonl"))

	require.NoError(t, os.Remove(l.path("started")))
	l.write("broken.jsonl", chat("a", "a")+"{oops\n")
	p = l.run(2, l.here("broken.jsonl", "--out", "none.jsonl")...)
	require.Contains(t, p.stderr.String(), "broken.jsonl:2: not JSON")
	require.NoFileExists(t, l.path("started"))

	l.run(0, l.here("requests.jsonl", "--out", "out.parquet")...)
	l.run(0, "map", "--in", "out.parquet", "--columns", "key,usage", "--local", "--out", "rows.jsonl", "--", "cat")
	require.JSONEq(t, `{"key":"a","usage":"{\"prompt_tokens\":1,\"completion_tokens\":2}"}`, string(l.lines(l.file("rows.jsonl"))[0]["value"]))

	p = l.run(2, "llm", "requests.jsonl", "--model", "m", "--local", "--python", filepath.Join(venv(t), "bin", "python"), "--engine", "vlm", "--out", "x.jsonl")
	require.Contains(t, p.stderr.String(), "there is no engine 'vlm'; write vllm or transformers or llama")
}

// A request that hangs has its timeout, though its engine reports all the while.
func TestLLM_RequestThatHangs(t *testing.T) {
	l := newLLM(t)
	l.write("requests.jsonl", chat("a", "wait")+chat("b", "two"))
	l.run(1, l.here("requests.jsonl", "--out", "out.jsonl", "--timeout", "3s")...)
	got := l.responses(l.file("out.jsonl"))
	require.Equal(t, "timeout", got[0].Error.Code)
	require.Equal(t, "two", got[1].content())
}

// While a model runs, what its engine does is shown, and at the end what that came to.
func TestLLM_IsSeen(t *testing.T) {
	l := newLLM(t)
	l.at(newSite(t))
	port := programtest.FreePort(t)
	l.write("worker.yaml", "store: file://"+l.path("store")+"\nmetrics: \"127.0.0.1:"+port+"\"\npools: [{name: host, devices: cpu}]\ntasks: {llm: {python: \"engine.py:Mine\", venv: "+
		venv(t)+"}}\n")
	worker := l.begin("worker", "-f", "worker.yaml")
	l.write("requests.jsonl", chat("a", "one two three")+chat("b", "wait"))
	args := []string{"llm", "requests.jsonl", "--model", "m", "--pool", "host", "--id", "seen"}
	p := l.run(0, append(args, "--detach")...)
	require.Contains(t, p.stderr.String(), "gpumux results seen --openai")
	var shown struct{ Running []struct{ Progress string } }
	rig.Wait(t, func() bool {
		require.NoError(t, json.Unmarshal([]byte(l.run(0, "show", "seen", "--json").stdout.String()), &shown))
		return len(shown.Running) == 1 && strings.Contains(shown.Running[0].Progress, "tokens_per_second")
	}, time.Minute, 50*time.Millisecond)
	require.Regexp(t, `^\{"running":1,"prompt_tokens_per_second":[0-9.]+,"generation_tokens_per_second":[0-9.]+\}$`, shown.Running[0].Progress)
	require.Regexp(t, `item 1: host/0 on CPU at \S+ for \S+, [0-9]+ tokens/s in, [0-9]+ out, 1 running\n`, l.run(0, "show", "seen").stdout.String())
	answer, err := http.Get("http://127.0.0.1:" + port + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `gpumux_progress{name="running",pool="host",slot="host/0"} 1`+"\n")

	following := l.begin(append(args, "--out", "out.jsonl", "--price", "36")...)
	waiting := l.begin("wait", "seen")
	rig.Wait(t, func() bool { return strings.Contains(following.stderr.String(), "map seen runs already") }, time.Minute, 20*time.Millisecond)
	l.write("open", "")
	require.Equal(t, 0, following.code(), &following.stderr)
	require.Regexp(t, `tokens     4 in, 6 out\n`, following.stderr.String())
	require.Equal(t, 0, waiting.code(), &waiting.stderr)
	require.Contains(t, waiting.stderr.String(), "gpumux results seen --openai")

	p = l.run(0, append(args, "--out", "out.jsonl", "--json", "--retry")...)
	var end map[string]any
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &end))
	require.Equal(t, []any{4.0, 6.0}, []any{end["promptTokens"], end["completionTokens"]})
	require.NotContains(t, end, "tokensPerSecond", "they are of an earlier run")
	for _, wrong := range [][]string{{"--price", "-1"}, {"--price", "nan"}, {"--price", "1", "--detach"}} {
		require.Contains(t, l.run(2, append(args, wrong...)...).stderr.String(), "--price", wrong)
	}
	require.Contains(t, l.run(2, append(args, "--with-item")...).stderr.String(), "--with-item does not go with lines of OpenAI's batches")
	stop(t, worker)
}

// Workers run the model by its name in their file, for several maps at the same time. The
// results of such a map come in the form of a batch when asked.
func TestLLM_OnWorkers(t *testing.T) {
	l := newLLM(t)
	l.at(newSite(t))
	l.write("worker.yaml", "store: file://"+l.path("store")+"\npools: [{name: host, devices: cpu, slots: 2}]\ntasks: {llm: {python: \"engine.py:Mine\", venv: "+
		venv(t)+"}, other: {python: \"engine.py:Mine\", venv: "+venv(t)+"}}\n")
	worker := l.begin("worker", "-f", "worker.yaml")
	var running []*program
	for i, task := range []string{"llm", "other"} {
		l.write(task+".jsonl", chat("a", task)+chat("b", "wait")+chat("c", strings.Repeat("long ", 70)))
		running = append(running, l.begin("llm", task+".jsonl", "--model", "some/model", "--task", task, "--pool", "host",
			"--request", fmt.Sprintf("n=%d", i), "--out", task+".out.jsonl"))
	}
	rig.Wait(t, func() bool { return l.calls()["llm"] == 1 && l.calls()["other"] == 1 }, time.Minute, 20*time.Millisecond, "both run")
	l.write("open", "")
	for i, task := range []string{"llm", "other"} {
		require.Equal(t, 1, running[i].code(), &running[i].stderr)
		got := l.responses(l.file(task + ".out.jsonl"))
		require.Equal(t, []string{task, "wait", ""}, []string{got[0].content(), got[1].content(), got[2].content()})
		require.Equal(t, 400, got[2].Response.Status)
		require.JSONEq(t, fmt.Sprintf(`{"n":%d}`, i), string(got[0].Response.Body.Asked))
		id := regexp.MustCompile(`map (\S+): 3 items`).FindStringSubmatch(running[i].stderr.String())
		require.Len(t, id, 2, &running[i].stderr)
		require.Equal(t, l.file(task+".out.jsonl"), l.run(1, "results", id[1], "--openai").stdout.String())
		failed := l.run(1, "results", id[1], "--openai", "--failed").stdout.String()
		require.Equal(t, 1, strings.Count(failed, "\n"))
		require.Contains(t, failed, `"custom_id":"c","response":{"status_code":400`)
	}
	stop(t, worker)
	require.Equal(t, l.file("started"), l.file("stopped"), "each engine was stopped")
}
