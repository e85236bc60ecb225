package cli

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/batches"
	"github.com/gpumux/gpumux/internal/fleet"
	"github.com/gpumux/gpumux/internal/launch"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/report"
	"github.com/gpumux/gpumux/internal/results"
	"github.com/gpumux/gpumux/internal/text"
	"github.com/gpumux/gpumux/starter"
)

// modelTask is the task that comes with the package for Python.
const modelTask = "gpumux.llm:Model"

// requestKey is what names a request of a batch.
const requestKey = "custom_id"

// notOfModels are flags of map that llm is without.
var notOfModels = []string{"in", "range", "glob", "arg", "stage", "keep", "mode", "fresh", "output", "files", "openai"}

// enginesOwn are the variables that an engine sees with --local.
var enginesOwn = regexp.MustCompile("^(VLLM|HF|NCCL)_")

// modelArg is the arg of modelTask.
type modelArg struct {
	Model    string                     `json:"model"`
	Engine   string                     `json:"engine,omitempty"`
	Settings map[string]json.RawMessage `json:"settings,omitempty"`
	Prompt   string                     `json:"prompt,omitempty"`
	Request  map[string]json.RawMessage `json:"request,omitempty"`
}

func (arg *modelArg) register(flags *pflag.FlagSet) {
	flags.StringVar(&arg.Engine, "engine", "", "vllm, transformers or llama (default: the first that is installed)")
	flags.Func("setting", "`KEY=VALUE` for the engine, such as max_model_len=8192; may be given again", keyValue(&arg.Settings))
	flags.Func("request", "`KEY=VALUE` for each request that does not say otherwise, such as temperature=0; may be given again", keyValue(&arg.Request))
}

func llmCommand(a *app) *cobra.Command {
	f, arg, task, spent := &mapFlags{}, modelArg{}, "", &tokens{}
	c := &cobra.Command{
		Use:   "llm FILE... --model NAME",
		Short: "Ask a language model many things; given again it goes on where it was",
		Long: `Ask a language model all requests of files in the form of OpenAI's batches, and write its responses in that
form: {"id":…,"custom_id":…,"response":{"status_code":200,…},"error":null}. With --prompt the items are rows,
of JSON lines, CSV or Parquet, and results are as of gpumux map, with text, finish_reason, prompt_tokens and
completion_tokens of each.

An engine of the Python environment runs the model: vLLM, transformers, or llama.cpp (xllamacpp) on a CPU. A
request may have what the engine's own server takes, and gets what that answers. One that it refuses costs its
row; so does one with a field that vLLM or transformers would ignore. --setting goes to the engine.

It is a map of the task gpumux.llm:Model, as which a worker's file names it (default llm), with that map's
flags; see gpumux map. An engine starts once per slot. Its memory follows from --memory, its GPUs from
--gpus-per-slot. With --local it sees the variables of this environment that begin with VLLM_, HF_ and NCCL_.`,
		Example: `  gpumux llm requests.jsonl --model Qwen/Qwen3-8B --local --out responses.jsonl
  gpumux llm reviews.parquet --model Qwen/Qwen3-8B --prompt 'Summarize: {text}' --key id --out summaries.parquet
  gpumux llm requests.jsonl --model Qwen/Qwen3-32B --local --gpus-per-slot 4 --setting max_model_len=8192
  gpumux llm requests.jsonl --model SmolLM2.gguf --engine llama --local --request temperature=0`,
		Args: cobra.ArbitraryArgs,
	}
	f.register(c)
	flags := c.Flags()
	for _, name := range notOfModels {
		_ = flags.MarkHidden(name)
	}
	arg.register(flags)
	flags.StringVar(&arg.Model, "model", "", "what the engine loads: a `name` on a hub, a folder or a file")
	flags.StringVar(&arg.Prompt, "prompt", "", "`text` to ask of each row, with its fields in braces, or {} for a row that is text: 'Summarize: {text}'")
	flags.StringVar(&task, "task", "", "the task, with --local also a class of your own made of gpumux.llm.Model (default llm, with --local gpumux.llm:Model)")
	flags.Float64Var(&spent.price, "price", 0, "what an hour of a slot costs: the summary has the cost of the time in which slots had requests, without starts of engines, and of a million tokens out")
	a.storeFlags(c)
	c.RunE = func(c *cobra.Command, files []string) error {
		f.openAI = arg.Prompt == "" && !names.Table(f.out)
		if err := f.checkModel(c, files, arg, task, spent.price); err != nil {
			return err
		}
		r, err := newMapRun(a, f)
		if err != nil {
			return err
		}
		r.out.tokens = spent
		return r.run(c.Context())
	}
	return c
}

func (f *mapFlags) checkModel(c *cobra.Command, files []string, arg modelArg, task string, price float64) (err error) {
	var m mistakes
	changed := c.Flags().Changed
	for _, name := range notOfModels {
		m.when(changed(name), "--%s does not go with llm; `gpumux map %s` takes it", name, modelTask)
	}
	m.when(c.ArgsLenAtDash() >= 0, "-- does not go with llm; give FILEs before the flags or behind them")
	m.when(changed("price") && (f.detach || !(price > 0 && price < 1e9)), "--price %v: give what an hour of a slot costs, such as 2.5, and no --detach, which does not see the results", price)
	m.when(len(files) == 0, "no FILE; give requests, or rows with --prompt")
	m.when(strings.TrimSpace(arg.Model) == "", "--model is missing; give the name of a model, such as Qwen/Qwen3-8B, or its folder or file")
	if err := m.err(); err != nil {
		return err
	}
	for _, file := range files {
		if err := c.Flags().Set("in", file); err != nil {
			return err
		}
	}
	if arg.Prompt == "" && !changed("key") {
		f.input.Key = requestKey
	}
	if f.local {
		task = cmp.Or(task, modelTask)
		f.task.Start = cmp.Or(f.task.Start, gpumux.Duration(time.Hour)) // it may download the model
		for _, pair := range os.Environ() {
			name, _, _ := strings.Cut(pair, "=")
			if enginesOwn.MatchString(name) && launch.Refused(name) == "" {
				f.task.PassEnv = append(f.task.PassEnv, name)
			}
		}
		if !changed("slots") { // an engine takes what there is
			err = f.parseSlots("1")
		}
	}
	f.input.Arg, _ = text.Marshal(arg)
	return cmp.Or(err, f.check(c, []string{cmp.Or(task, "llm")}))
}

// keyValue is a flag that adds to an object. What is no JSON is text.
func keyValue(to *map[string]json.RawMessage) func(string) error {
	return func(pair string) error {
		key, value, isPair := strings.Cut(pair, "=")
		if !isPair || key == "" {
			return errors.New("write KEY=VALUE, such as max_model_len=8192")
		}
		if *to == nil {
			*to = map[string]json.RawMessage{}
		}
		if !json.Valid([]byte(value)) {
			quoted, _ := text.Marshal(value) // text always encodes
			value = string(quoted)
		}
		(*to)[key] = json.RawMessage(value)
		return nil
	}
}

// statusLine is the message of a request that the engine has answered with an error: its
// status, the type of the error, and its words.
var statusLine = regexp.MustCompile(`(?s)^(\d{3}) ([^:]*): (.*)$`)

type batchResponse struct {
	Status    int             `json:"status_code"`
	RequestID string          `json:"request_id"`
	Body      json.RawMessage `json:"body"`
}

// batchRow is a result as a line of the output of OpenAI's batches.
func batchRow(line []byte) ([]byte, error) {
	r, err := results.Parse(line)
	if err != nil {
		return nil, err
	}
	row := struct {
		ID       string          `json:"id"`
		CustomID json.RawMessage `json:"custom_id"`
		Response *batchResponse  `json:"response"`
		// Error is of a request that the engine did not answer.
		Error map[string]string `json:"error"`
	}{ID: "batch_req_" + strconv.FormatInt(r.Index, 10), CustomID: r.Key}
	response := batchResponse{Status: 200, RequestID: row.ID, Body: r.Value}
	var status []string
	if r.Fault != nil && strings.HasPrefix(r.Fault.Class, "gpumux.llm.") {
		status = statusLine.FindStringSubmatch(r.Fault.Message)
	}
	switch {
	case r.Fault == nil:
		row.Response = &response
	case status == nil:
		row.Error = map[string]string{"code": string(r.Fault.Kind), "message": r.Fault.Message}
	default:
		response.Status, _ = strconv.Atoi(status[1])
		response.Body, _ = text.Marshal(map[string]any{"error": map[string]any{"message": status[3], "type": status[2], "param": nil, "code": response.Status}})
		row.Response = &response
	}
	out, err := text.Marshal(row)
	return bytes.TrimSpace(out), err
}

// tokens are those of a model's results, and what they cost.
type tokens struct {
	In         int64   `json:"promptTokens"`
	Out        int64   `json:"completionTokens"`
	PerSecond  float64 `json:"tokensPerSecond,omitempty"` // of Out
	Cost       float64 `json:"cost,omitempty"`
	PerMillion float64 `json:"costPerMillion,omitempty"` // of Out
	price      float64 // of an hour of a slot
}

// add counts those of a result, which has them itself or in its usage.
func (t *tokens) add(line []byte) {
	var r struct{ Value map[string]json.RawMessage }
	if t != nil && json.Unmarshal(line, &r) == nil && r.Value != nil {
		_ = json.Unmarshal(r.Value["usage"], &r.Value)
		for name, to := range map[string]*int64{"prompt_tokens": &t.In, "input_tokens": &t.In, "completion_tokens": &t.Out, "output_tokens": &t.Out} {
			n, _ := strconv.ParseInt(string(r.Value[name]), 10, 64)
			*to += n
		}
	}
}

// addTo adds them to what a map came to. One that went on has results of earlier runs.
func (t *tokens) addTo(end *ending, entry starter.Entry) {
	end.tokens, end.spent = t, fmt.Sprintf("%s in, %s out", humanize.Comma(t.In), humanize.Comma(t.Out))
	if t.Out > 0 && end.Elapsed > 0 && entry == starter.EntryStarted {
		t.PerSecond, t.Cost = float64(t.Out)/time.Duration(end.Elapsed).Seconds(), t.price*time.Duration(end.Busy).Hours()
		t.PerMillion = t.Cost / float64(t.Out) * 1e6
		end.spent += fmt.Sprintf(", %s out", report.PerSecond(t.PerSecond)) +
			text.When(t.price > 0, "\n  cost       %.4g, %.4g per million tokens out", t.Cost, t.PerMillion)
	}
}

func batchesCommand(a *app) *cobra.Command {
	f, arg, s := &taskFlags{}, modelArg{}, &batches.Server{MaxFile: 1 << 30}
	var listen, keys, cert, key string
	var models []string
	c := &cobra.Command{
		Use:   "batches --model NAME...",
		Short: "Serve OpenAI's Files and Batches",
		Long: `Serve OpenAI's Files and Batches on one's own GPUs, until Ctrl-C: clients get the base_url that it prints.
Each batch is a map of the task llm on workers, as of gpumux llm, by the same ID. Files and batches lie in the
store. After Ctrl-C or kill -9 open batches go on, and the next start takes them up. One server at
a time serves a store.

Without --keys it listens on loopback alone, and all who reach it are one user. With it each user has a key,
sees files and batches of their own, and shares the GPUs evenly with others. Beyond loopback it needs TLS too.`,
		Example: `  gpumux batches --model Qwen/Qwen3-8B
  gpumux batches --model Qwen/Qwen3-8B --listen 0.0.0.0:8443 --keys keys --tls-cert cert.pem --tls-key key.pem`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	arg.register(flags)
	f.registerPool(flags)
	_ = flags.MarkHidden("no-wait")
	flags.StringArrayVar(&models, "model", nil, "a `name` that requests may have as model, and what the engine loads; NAME=POOL,POOL where it has pools of its own; may be given again")
	flags.StringVar(&f.input.Task, "task", "llm", "the task, as the worker's file names it")
	flags.StringVar(&listen, "listen", "127.0.0.1:8000", "the address")
	flags.StringVar(&keys, "keys", "", "a `file` of lines NAME KEY, which others may not read")
	flags.StringVar(&cert, "tls-cert", "", "a `file` with the certificate, and those between")
	flags.StringVar(&key, "tls-key", "", "a `file` with its key")
	flags.Func("max-file", "most `bytes` of a file (default 1GiB)", func(text string) error { return s.MaxFile.UnmarshalText([]byte(text)) })
	a.storeFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		var m mistakes
		m.when(len(models) == 0, "--model is missing; give the name of a model, such as Qwen/Qwen3-8B, or its folder or file")
		s.Models = map[string][]string{}
		for _, model := range models {
			name, pools, named := strings.Cut(model, "=")
			m.when(strings.TrimSpace(name) == "" || s.Models[name] != nil, "--model %q: give each name once, such as Qwen/Qwen3-8B, or NAME=POOL", model)
			if s.Models[name] = f.input.Rungs(); named {
				s.Models[name] = strings.Split(pools, ",")
			}
		}
		m.when((cert == "") != (key == ""), "--tls-cert and --tls-key go together")
		m.when(!names.Loopback(listen) && (keys == "" || cert == ""), "--listen %s is beyond this machine's loopback, and needs --keys, --tls-cert and --tls-key", listen)
		m.when(s.MaxFile < 1, "--max-file %s leaves no file", s.MaxFile)
		if keys != "" {
			err := s.ReadKeys(keys)
			m.when(err != nil, "--keys: %v", err)
		}
		secret, err := tls.LoadX509KeyPair(cert, key)
		m.when(err != nil && cert != "", "--tls-cert: %v", err)
		for _, ladder := range s.Models {
			checked := f.input
			checked.Range, checked.Ladder = &gpumux.Range{}, ladder
			err := checked.Validate()
			m.when(err != nil, "%v", err)
		}
		if err := m.err(); err != nil {
			return err
		}
		conn, err := a.connectWithStore(c.Context())
		if err != nil {
			return err
		}
		defer conn.close()
		on, err := net.Listen("tcp", listen)
		if err != nil {
			return unavailable(err)
		}
		url := "http"
		if cert != "" {
			url, on = "https", tls.NewListener(on, &tls.Config{Certificates: []tls.Certificate{secret}})
		}
		s.Starter, s.Input, s.Row, s.Say = conn.Starter, f.input, batchRow, a.console.Say
		s.Arg = func(model string) []byte {
			one := arg
			one.Model = model
			data, _ := text.Marshal(one) // it always encodes
			return data
		}
		a.console.Say("base_url   %s://%s/v1\nCtrl-C stops; batches go on", url, on.Addr())
		for _, model := range slices.Sorted(maps.Keys(s.Models)) {
			one := f.input
			one.Ladder = s.Models[model]
			if _, err := checkServed(c.Context(), conn.Starter, one.Steps()); errors.As(err, new(*fleet.NoWorkerError)) {
				a.console.Say("note: batches of %s wait: %v", model, err)
			}
		}
		return s.Serve(c.Context(), on)
	}
	return c
}
