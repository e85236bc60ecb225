package cli

import (
	"crypto/tls"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/batches"
	"github.com/gpumux/gpumux/internal/names"
	"github.com/gpumux/gpumux/internal/text"
)

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
			if err := s.ReadKeys(keys); err != nil {
				m.add("--keys: %v", err)
			}
		}
		secret, err := tls.LoadX509KeyPair(cert, key)
		m.when(err != nil && cert != "", "--tls-cert: %v", err)
		for _, ladder := range s.Models {
			checked := f.input
			checked.Range, checked.Ladder = &gpumux.Range{}, ladder
			if err := checked.Validate(); err != nil {
				m.add("%v", err)
			}
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
		return s.Serve(c.Context(), on)
	}
	return c
}
