package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gpumux/gpumux/internal/test/rig"
)

// clientPy is what scripts for OpenAI's batches have, with OpenAI's own client.
const clientPy = `
import json, os, sys, time
import openai
client = openai.OpenAI(base_url=os.environ["BASE"], api_key=os.environ.get("KEY", "none"))

def upload(name):
    with open(name, "rb") as file:
        return client.files.create(file=file, purpose="batch")

def begin(name, endpoint="/v1/chat/completions", window="24h", **more):
    return client.batches.create(input_file_id=upload(name).id, endpoint=endpoint, completion_window=window, **more)

def until(id, *states):
    while True:
        batch = client.batches.retrieve(id)
        if batch.status in states: return batch
        assert batch.status not in ("completed", "failed", "expired", "cancelled"), batch
        time.sleep(0.05)

def ended(id):
    return until(id, "completed", "failed", "expired", "cancelled")

def rows(id):
    return [json.loads(line) for line in client.files.content(id).text.splitlines()]

def names(id):
    return sorted(row["custom_id"] for row in rows(id))

def fails(kind, call, *args, **more):
    try:
        call(*args, **more)
    except kind as error:
        assert type(error) is kind, error
        return error
    raise AssertionError("nothing failed")
`

// batches is an engine of one's own on a worker, behind OpenAI's interface.
type batches struct {
	*llm
	args []string
	*program
}

func newBatches(t *testing.T, more ...string) *batches {
	b := &batches{llm: newLLM(t)}
	b.at(newSite(t))
	b.write("client.py", clientPy)
	b.write("worker.yaml", "store: file://"+b.path("store")+"\npools: [{name: gpu, devices: cpu, slots: 1}, {name: second, devices: cpu, slots: 1}]\ntasks: {llm: {python: \"engine.py:Mine\", venv: "+venv(t)+"}}\n")
	b.begin("worker", "-f", "worker.yaml")
	t.Cleanup(func() { b.write("open", "") }) // or the worker waits for what waits
	b.args = append([]string{"batches", "--model", "some/model", "--model", "other/model", "--listen", "127.0.0.1:0", "--store", "file://" + b.path("store")}, more...)
	b.serve()
	return b
}

func (b *batches) serve() {
	b.program = b.begin(b.args...)
	b.ready()
	base := regexp.MustCompile(`base_url +(\S+)`).FindStringSubmatch(b.stderr.String())
	b.env = append(b.env, "BASE="+base[1])
}

// python runs a script that has the client, and returns what it prints.
func (b *batches) python(script string, env ...string) string {
	b.t.Helper()
	c := exec.Command(filepath.Join(venv(b.t), "bin", "python"), "-c", "from client import *\n"+script)
	c.Dir, c.Env = b.dir, append(append(os.Environ(), b.env...), env...)
	out, err := c.CombinedOutput()
	require.NoError(b.t, err, "%s\n%s", out, &b.stderr)
	return string(out)
}

// asking is a chat of some/model.
func asking(id, content string) string {
	return strings.Replace(chat(id, content), `"body":{`, `"body":{"model":"some/model",`, 1)
}

// stored are the files of the store that people's requests have left.
func (b *batches) stored() (names []string) {
	for _, pattern := range []string{"store/batches/*/*", "store/batches/*/files/*", "store/.tmp/*"} {
		found, err := filepath.Glob(b.path(pattern))
		require.NoError(b.t, err)
		names = append(names, found...)
	}
	return names
}

// A script for OpenAI's batches gets what it gets there.
func TestBatches_Client(t *testing.T) {
	b := newBatches(t, "--setting", "max_model_len=8", "--request", "temperature=0", "--max-file", "2MiB")
	b.write("in.jsonl", "\xef\xbb\xbf"+asking("a", "one")+"\n"+asking("b", strings.Repeat("long ", 9))+asking("c", "raise")+asking("d", "four"))
	b.python(`
fails(openai.NotFoundError, client.models.list)
file = upload("in.jsonl")
assert (file.filename, file.purpose, file.bytes) == ("in.jsonl", "batch", os.path.getsize("in.jsonl")), file
batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"for": "a test"})
assert batch.status == "validating" and batch.metadata == {"for": "a test"} and batch.expires_at - batch.created_at == 86400, batch
done = ended(batch.id)
assert done.status == "completed" and done.model == "some/model" and done.errors is None, done
assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (4, 2, 2), done
assert done.created_at <= done.in_progress_at <= done.finalizing_at <= done.completed_at, done
good, bad = rows(done.output_file_id), rows(done.error_file_id)
assert [(row["custom_id"], row["response"]["status_code"], row["response"]["body"]["choices"][0]["message"]["content"], row["error"]) for row in good] == [
    ("a", 200, "one", None), ("d", 200, "four", None)], good
assert good[0]["response"]["body"]["asked"] == {"model": "some/model", "temperature": 0}, good
assert (bad[0]["custom_id"], bad[0]["response"]["status_code"], bad[0]["response"]["body"]["error"]["type"]) == ("b", 400, "BadRequestError"), bad
assert (bad[1]["custom_id"], bad[1]["response"], bad[1]["error"]) == ("c", None, {"code": "task_error", "message": "no answer"}), bad
assert client.files.retrieve(done.output_file_id).purpose == "batch_output"

error = fails(openai.ConflictError, client.batches.cancel, batch.id)
assert "is completed, and cannot be cancelled" in error.message, error
for call in (client.batches.retrieve, client.batches.cancel, client.files.retrieve, client.files.content, client.files.delete):
    for name in ("batch_" + 32 * "0", "file-" + 32 * "0", "x", file.id if "atch" in str(call) else batch.id):
        error = fails(openai.NotFoundError, call, name)
        assert error.body["type"] == "invalid_request_error" and error.code == "not_found", error.body
fails(openai.NotFoundError, client.chat.completions.create, model="some/model", messages=[])

def refused(param, says, **change):
    asked = {"input_file_id": file.id, "endpoint": "/v1/chat/completions", "completion_window": "24h", **change}
    error = fails(openai.BadRequestError, client.batches.create, **asked)
    assert error.param == param and says in error.message, error.body
refused("endpoint", "is \"/v1/chat\"; give one of /v1/chat/completions", endpoint="/v1/chat")
refused("completion_window", "is \"soon\"; give 24h", completion_window="soon")
refused("completion_window", "is \"0d\"", completion_window="0d")
refused("input_file_id", "is a file that a batch wrote", input_file_id=done.output_file_id)
refused("output_expires_after", "is no field; there are input_file_id", output_expires_after={"anchor": "created_at", "seconds": 3600})
refused("metadata.a", "is a number", metadata={"a": 1})
error = fails(openai.BadRequestError, client.files.create, file=open("in.jsonl", "rb"), purpose="fine-tune")
assert error.param == "purpose", error.body
fails(openai.BadRequestError, client.files.create, file=b"", purpose="batch")
import urllib.error, urllib.request
def post(form):
    try:
        urllib.request.urlopen(urllib.request.Request(os.environ["BASE"] + "/files", form, {"Content-Type": "multipart/form-data; boundary=x"}))
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]
part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\none\r\n'
assert post(part + part + b"--x--\r\n") == (400, "file comes twice")
status, message = post(b"no form")
assert status == 400 and message.startswith("the form ends early: "), message
fails(openai.BadRequestError, client.files.create, file=b"x", purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600})

assert client.files.delete(file.id).deleted
fails(openai.NotFoundError, client.files.retrieve, file.id)
assert sorted(f.id for f in client.files.list()) == sorted([done.output_file_id, done.error_file_id])
`)
	before := b.stored()
	b.write("large.jsonl", strings.Repeat(asking("a", strings.Repeat("large ", 1000)), 1000))
	b.python(`
for size in (None, 2 * 2**20 + 1):
    error = fails(openai.APIStatusError, client.files.create, file=open("large.jsonl", "rb").read(size), purpose="batch")
    assert error.status_code == 413 and "2MiB" in error.message, error
error = fails(openai.APIStatusError, client.batches.create, input_file_id="x" * 2**21, endpoint="a", completion_window="a")
assert error.status_code == 413, error
`)
	require.Equal(t, before, b.stored(), "nothing is left of what was refused")
	require.Contains(t, b.run(0, "ls").stdout.String(), "batch_")
	require.Contains(t, b.stderr.String(), "of everybody: 4 requests to some/model, from in.jsonl\n")
	require.Regexp(t, `batch_\w+ of everybody: completed after \S+; 2 answered, 2 not\n`, b.stderr.String())
	require.NoError(t, b.Process.Signal(syscall.SIGINT))
	require.Equal(t, 0, b.code())
}

// What is wrong with a file is found before anything runs.
func TestBatches_WithoutAWorker(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	s.at(newSite(t))
	p := s.begin("batches", "--model", "some", "--pool", "gpu", "--listen", "127.0.0.1:0", "--store", "file://"+s.path("store"))
	rig.Wait(t, func() bool {
		return strings.Contains(p.stderr.String(), "note: batches of some wait: no worker serves ")
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, p.Process.Signal(syscall.SIGINT))
}

func TestBatches_WrongLines(t *testing.T) {
	b := newBatches(t)
	b.write("in.jsonl", asking("a", "one")+"\n{oops\n"+asking("a", "two")+strings.Replace(asking("b", "b"), "POST", "GET", 1)+
		strings.Replace(asking("c", "c"), "/chat", "", 1)+strings.Replace(asking("d", "d"), "some/model", "gpt-4", 1)+
		strings.Replace(asking("e", "e"), "some/model", "other/model", 1)+chat("f", "f")+strings.Replace(asking("", "g"), `"custom_id":"",`, "", 1)+"7\n\xff\n")
	b.write("many.jsonl", strings.Repeat("no\n", 1000))
	b.write("empty.jsonl", "\n \n")
	out := b.python(`
batch = ended(begin("in.jsonl").id)
assert batch.status == "failed" and batch.failed_at and not batch.in_progress_at and batch.request_counts.total == 0, batch
for error in batch.errors.data: print(error.line, error.param or None, error.message)
batch = ended(begin("many.jsonl").id)
assert [error.line for error in batch.errors.data] == list(range(1, 101)), batch
batch = ended(begin("empty.jsonl").id)
assert batch.errors.data[0].message == "input_file_id has no request, or is gone", batch
`)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for i, want := range []string{
		`3 None jsontext: `, `4 custom_id custom_id is "a"; give each request one of its own`, `5 method method is "GET"; give POST`,
		`6 url url is "/v1/completions"; give /v1/chat/completions, as the batch has it`,
		`7 body.model body.model is "gpt-4", and was some/model before; a batch has one`,
		`8 body.model body.model is "other/model", and was some/model before; a batch has one`,
		`9 body.model body.model is "", and was some/model before; a batch has one`, `10 custom_id custom_id is ""; give each`, `11 None is a number; an object belongs here`,
	} {
		require.True(t, strings.HasPrefix(lines[i], want), "%s\n%s", want, lines[i])
	}
	require.Len(t, lines, 10)
	require.NoFileExists(t, b.path("started"))
	require.NotContains(t, b.run(0, "ls").stdout.String(), "batch_")
}

// Lists come in pages, the newest first.
func TestBatches_Pages(t *testing.T) {
	b := newBatches(t)
	b.write("in.jsonl", asking("a", "one"))
	b.python(`
ids = [upload("in.jsonl").id for _ in range(5)]
assert [file.id for file in client.files.list()] == ids[::-1]
assert [file.id for file in client.files.list(order="asc", limit=2)] == ids
assert [file.id for file in client.files.list(limit=2)] == ids[::-1]
page = client.files.list(order="asc", after=ids[1], limit=2)
assert [file.id for file in page.data] == ids[2:4] and page.has_more, page
assert not client.files.list(order="asc", after=ids[2], limit=2).has_more
batches = [client.batches.create(input_file_id=id, endpoint="/v1/chat/completions", completion_window="7d").id for id in ids]
assert [batch.id for batch in client.batches.list(limit=2)] == batches[::-1]
done = [ended(id) for id in batches]
assert {batch.status for batch in done} == {"completed"}
assert {file.id for file in client.files.list(purpose="batch_output", limit=1)} == {batch.output_file_id for batch in done}
assert [file.id for file in client.files.list(purpose="batch", limit=3)] == ids[::-1]
fails(openai.BadRequestError, client.batches.list, limit=101)
fails(openai.BadRequestError, client.files.list, order="up")
`)
}

// A batch that is cancelled, or whose window is over, has what was answered till then.
func TestBatches_EndsEarly(t *testing.T) {
	b := newBatches(t)
	var in strings.Builder
	for i := range 24 {
		content := fmt.Sprintf("n%d", i)
		if i >= 20 {
			content = "wait"
		}
		in.WriteString(asking(fmt.Sprintf("r%d", i), content))
	}
	b.write("in.jsonl", in.String())
	check := `
def check(batch, code):
    answered, not_answered = names(batch.output_file_id), rows(batch.error_file_id)
    assert answered == sorted(f"r{i}" for i in range(20)), answered
    assert [row["custom_id"] for row in not_answered] == [f"r{i}" for i in range(20, 24)], not_answered
    assert {row["error"]["code"] for row in not_answered} == {code}, not_answered
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (24, 20, 4), batch
`
	id := strings.TrimSpace(b.python(`print(begin("in.jsonl").id)`))
	rig.Wait(t, func() bool { return storedItems(t, b.path("store")) == 20 }, time.Minute, 20*time.Millisecond)
	b.python(check + `
asked = client.batches.cancel("` + id + `")
assert asked.status == "cancelling" and asked.cancelling_at, asked
error = fails(openai.ConflictError, client.files.delete, asked.input_file_id)
assert "is the input of " + asked.id in error.message, error
batch = ended("` + id + `")
assert batch.status == "cancelled" and batch.cancelled_at and client.batches.cancel(batch.id).status == "cancelled", batch
check(batch, "batch_cancelled")

batch = ended(begin("in.jsonl", window="8s").id)
assert batch.status == "expired" and batch.expires_at <= batch.expired_at, batch
check(batch, "batch_expired")

batch = ended(client.batches.cancel(begin("in.jsonl").id).id)
assert batch.status == "cancelled", batch
`)
}

// After a kill the next server goes on, and asks nothing twice.
func TestBatches_Kill(t *testing.T) {
	b := newBatches(t)
	var in strings.Builder
	for i := range 60 {
		content := fmt.Sprintf("n%d", i)
		if i%10 == 9 {
			content = "wait"
		}
		in.WriteString(asking(fmt.Sprintf("r%d", i), content))
	}
	b.write("in.jsonl", in.String())
	id := strings.TrimSpace(b.python(`
batch = begin("in.jsonl")
until(batch.id, "in_progress")
print(batch.id)`))
	rig.Wait(t, func() bool { return b.calls()["n0"] == 1 }, time.Minute, 20*time.Millisecond)
	kill := func() {
		require.NoError(t, b.Process.Kill())
		<-b.ended
	}
	kill()
	b.write("open", "")
	rig.Wait(t, func() bool { return b.calls()["wait"] == 6 }, time.Minute, 20*time.Millisecond)
	b.serve()
	complete := `
batch = ended("` + id + `")
assert batch.status == "completed", batch
assert names(batch.output_file_id) == sorted(f"r{i}" for i in range(60)) and batch.error_file_id is None, batch
`
	b.python(complete)
	once := func() {
		t.Helper()
		calls := b.calls()
		require.Equal(t, 6, calls["wait"])
		delete(calls, "wait")
		require.Len(t, calls, 54)
		for word, n := range calls {
			require.Equal(t, 1, n, word)
		}
	}
	once()

	// Each is what a kill leaves: after the check, after the start, in the end.
	file := b.path("store/batches/everybody/" + id + ".json")
	edit := func(to string, change func(map[string]any)) {
		var record map[string]any
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &record))
		record["id"], record["output_file_id"], record["error_file_id"], record["completed_at"] = to, nil, nil, nil
		change(record)
		data, err = json.Marshal(record)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(b.path("store/batches/everybody/"+to+".json"), data, 0o600))
	}
	for _, status := range []string{"validating", "in_progress", "finalizing"} {
		kill()
		edit(id, func(record map[string]any) {
			if record["status"] = status; status == "validating" {
				delete(record, "gpumux_results")
			}
		})
		b.serve()
		b.python(complete)
		once()
	}

	// Temporal knows nothing of these maps. The first never began.
	kill()
	fresh, lost, old := "batch_"+strings.Repeat("a", 32), "batch_"+strings.Repeat("b", 32), "batch_"+strings.Repeat("c", 32)
	edit(fresh, func(record map[string]any) {
		record["status"] = "validating"
		delete(record, "gpumux_results")
	})
	edit(lost, func(record map[string]any) {
		record["status"], record["usage"] = "in_progress", map[string]any{"of_a_later_version": true}
	})
	b.write("store/batches/everybody/batch_"+strings.Repeat("0", 32)+".json", "{") // which holds up no other
	edit(old, func(record map[string]any) {
		record["status"], record["gpumux_begun"] = "validating", 1.7e9
		delete(record, "gpumux_results")
	})
	b.serve()
	b.python(fmt.Sprintf(`
batch = ended("%s")
assert batch.status == "completed" and batch.request_counts.completed == 60, batch
batch = ended("%s")
assert batch.status == "completed" and batch.request_counts.completed == 60, batch
batch = ended("%s")
assert batch.status == "failed" and "no longer knows the map" in batch.errors.data[0].message and batch.output_file_id is None, batch
assert {row["error"]["code"] for row in rows(batch.error_file_id)} == {"batch_failed"}
`, fresh, lost, old))
	require.Equal(t, 2, b.calls()["n0"], "one of the three ran")
	b.run(0, "prune", "--older-than", "1h")
	b.python(complete)
}

// A batch waits for those of other models that came before it, unless it has pools of its
// own.
func TestBatches_ModelsTakeTurns(t *testing.T) {
	b := newBatches(t)
	b.write("wait.jsonl", asking("a", "wait"))
	b.write("in.jsonl", asking("a", "one"))
	b.write("other.jsonl", strings.Replace(asking("a", "one"), "some/model", "other/model", 1))
	first := strings.TrimSpace(b.python(`
first = begin("wait.jsonl")
until(first.id, "in_progress")
print(first.id)`))
	second := strings.TrimSpace(b.python(`
second = begin("other.jsonl")
while not client.batches.retrieve(second.id).model or time.time() < second.created_at + 2: time.sleep(0.05)
print(second.id)`))
	require.NoError(t, b.Process.Kill())
	<-b.ended
	b.serve() // which does not change whose turn it is
	b.python(`
third = begin("in.jsonl")
while not client.batches.retrieve(third.id).model: time.sleep(0.05)
open("open", "w").close()
first, second, third = ended("` + first + `"), ended("` + second + `"), ended(third.id)
assert first.status == second.status == third.status == "completed", (first, second, third)
assert first.finalizing_at <= second.in_progress_at <= second.finalizing_at <= third.in_progress_at, (first, second, third)
os.remove("open")
`)
	require.Equal(t, 3, strings.Count(b.file("started"), "once"), "an engine for each turn")

	require.NoError(t, b.Process.Kill())
	<-b.ended
	b.args[slices.Index(b.args, "other/model")] = "other/model=second"
	b.serve()
	b.python(`
first = begin("wait.jsonl")
until(first.id, "in_progress")
assert ended(begin("other.jsonl").id).status == "completed"
assert client.batches.retrieve(first.id).status == "in_progress"
open("open", "w").close()
assert ended(first.id).status == "completed"
`)
}

// A map that fails as a whole says why.
func TestBatches_MapThatFails(t *testing.T) {
	b := newBatches(t, "--engine", "vllm")
	b.write("in.jsonl", asking("a", "one"))
	b.python(`
batch = ended(begin("in.jsonl").id)
assert batch.status == "failed" and "Mine has an engine of its own" in batch.errors.data[0].message, batch
assert names(batch.error_file_id) == ["a"], batch
`)
}

// Each user sees what is theirs.
func TestBatches_Users(t *testing.T) {
	b := newBatches(t)
	require.NoError(t, b.Process.Kill())
	b.write("keys", "# of the lab\nalice  alices-key-0123456789\n\nbob bobs-key-0123456789\n")
	b.args = append(b.args, "--keys", "keys")
	for _, bad := range []string{"alice", "alice short", "../alice alices-key-0123456789", "bob bobs-key-0123456789", "carl bobs-key-0123456789"} {
		b.write("bad", b.file("keys")+bad+"\n")
		require.NoError(t, os.Chmod(b.path("bad"), 0o600))
		require.Contains(t, b.run(2, append(b.args, "--keys", "bad")...).stderr.String(), "bad:5: write NAME KEY", bad)
	}
	require.NoError(t, os.Chmod(b.path("keys"), 0o604))
	require.Contains(t, b.run(2, b.args...).stderr.String(), "keys is open to every user of this machine; chmod 600 it")
	require.NoError(t, os.Chmod(b.path("keys"), 0o600))
	require.Contains(t, b.run(2, append(b.args, "--listen", "0.0.0.0:0")...).stderr.String(), "needs --keys, --tls-cert and --tls-key")
	b.serve()
	b.write("in.jsonl", asking("a", "one"))
	b.python(`
def user(key): return openai.OpenAI(base_url=os.environ["BASE"], api_key=key)
alice, bob = user("alices-key-0123456789"), user("bobs-key-0123456789")
client = alice
import client as module
module.client = alice
batch = ended(begin("in.jsonl").id)
assert [b.id for b in alice.batches.list()] == [batch.id] and len(list(alice.files.list())) == 2
assert not list(bob.batches.list()) and not list(bob.files.list())
for call, name in ((bob.batches.retrieve, batch.id), (bob.batches.cancel, batch.id), (bob.files.retrieve, batch.output_file_id),
                   (bob.files.content, batch.output_file_id), (bob.files.delete, batch.input_file_id)):
    fails(openai.NotFoundError, call, name)
fails(openai.NotFoundError, bob.batches.create, input_file_id=batch.input_file_id, endpoint="/v1/chat/completions", completion_window="24h")
for key in ("alices-key-012345678", "alice", "-"):
    error = fails(openai.AuthenticationError, user(key).batches.list)
    assert error.code == "invalid_api_key", error.body
`)
	require.Contains(t, b.stderr.String(), "of alice: 1 requests to some/model")
}

// Pages in a browser have no way in, by whatever name they come.
func TestBatches_WebPages(t *testing.T) {
	b := newBatches(t)
	base := b.env[len(b.env)-1][len("BASE="):]
	for _, c := range []struct {
		host, origin string
		want         int
	}{{"", "", 200}, {"localhost:1", "", 200}, {"[::1]:1", "", 200}, {"evil.example", "", 403}, {"127.0.0.1.evil.example:80", "", 403}, {"", "http://evil.example", 403}} {
		r, err := http.NewRequest(http.MethodPost, base+"/batches", strings.NewReader("{"))
		require.NoError(t, err)
		if c.host != "" {
			r.Host = c.host
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		if c.want == 200 {
			c.want = http.StatusBadRequest // for it is no JSON
		}
		require.Equal(t, c.want, answer.StatusCode, "%v", c)
	}
}

// Beyond loopback users come by TLS.
func TestBatches_TLS(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate, which is of 127.0.0.1
	server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	b := newBatches(t)
	require.NoError(t, b.Process.Kill())
	b.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	b.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	b.write("keys", "alice alices-key-0123456789\n")
	require.NoError(t, os.Chmod(b.path("keys"), 0o600))
	b.args = append(b.args, "--listen", "0.0.0.0:0", "--keys", "keys", "--tls-cert", "cert.pem")
	require.Contains(t, b.run(2, b.args...).stderr.String(), "--tls-cert and --tls-key go together")
	require.Contains(t, b.run(2, append(b.args, "--tls-key", "keys")...).stderr.String(), "--tls-cert: ")
	b.args = append(b.args, "--tls-key", "key.pem")
	b.serve()
	base := b.env[len(b.env)-1]
	require.Regexp(t, `^BASE=https://\[::\]:\d+/v1$`, base)
	b.env[len(b.env)-1] = strings.Replace(base, "[::]", "127.0.0.1", 1)
	b.write("in.jsonl", asking("a", "one"))
	b.python(`assert ended(begin("in.jsonl").id).status == "completed"`, "KEY=alices-key-0123456789", "SSL_CERT_FILE="+b.path("cert.pem"))
}

// Ctrl-C ends an upload, of which nothing is left.
func TestBatches_UploadIsCut(t *testing.T) {
	b := newBatches(t)
	body, to := io.Pipe()
	form := multipart.NewWriter(to)
	sent := make(chan error, 1)
	go func() {
		r, _ := http.NewRequest(http.MethodPost, b.env[len(b.env)-1][len("BASE="):]+"/files", body)
		r.Header.Set("Content-Type", form.FormDataContentType())
		answer, err := http.DefaultClient.Do(r)
		if err == nil && answer.StatusCode == http.StatusOK {
			err = errors.New("it was taken")
		} else {
			err = nil
		}
		sent <- err
	}()
	file, err := form.CreateFormFile("file", "in.jsonl")
	require.NoError(t, err)
	_, err = file.Write(bytes.Repeat([]byte(asking("a", "one")), 10000))
	require.NoError(t, err)
	rig.Wait(t, func() bool { return len(b.stored()) == 1 }, time.Minute, 20*time.Millisecond, "it comes into the store")
	require.NoError(t, b.Process.Signal(syscall.SIGINT))
	require.Equal(t, 0, b.code())
	require.NoError(t, to.Close()) // the client waits for its body
	require.NoError(t, <-sent)
	require.Empty(t, b.stored())
}
