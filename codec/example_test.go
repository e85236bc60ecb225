package codec_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/internal/store"
)

const (
	older = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	newer = "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"
)

// folder is a folder of key files; `openssl rand -hex 32` makes what is in one.
func folder(files map[string]string) string {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	return dir
}

// A service passes all that Temporal keeps of it through the workers' keys.
func ExampleApply() {
	keys, err := codec.Load("/etc/gpumux/keys")
	if err != nil {
		log.Fatal(err)
	}
	options := client.Options{HostPort: "temporal:7233"}
	codec.Apply(&options, keys)
	c, err := client.Dial(options)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

// A folder holds keys by ID; its file current says which of them encrypts.
func ExampleLoad() {
	dir := folder(map[string]string{"2025.key": older, "2026.key": newer, "current": "2026"})
	defer os.RemoveAll(dir)
	keys, err := codec.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(keys.IDs(), "current:", keys.Current())
	// Output:
	// [2025 2026] current: 2026
}

// Payloads are encrypted under a key that they name.
func ExampleConverter() {
	dir := folder(map[string]string{"2026.key": newer})
	defer os.RemoveAll(dir)
	keys, err := codec.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	data := codec.Converter(converter.GetDefaultDataConverter(), keys)
	payload, err := data.ToPayload("a secret")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(payload.Metadata[converter.MetadataEncoding]), string(payload.Metadata[codec.MetadataKeyID]))
	fmt.Println("in the clear:", strings.Contains(string(payload.Data), "a secret"))
	var text string
	if err := data.FromPayload(payload, &text); err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// binary/gpumux-aes256-gcm 2026
	// in the clear: false
	// a secret
}

// Keys rotate: add the new one everywhere, then make it the current one. What the older
// one encrypted can still be read.
func ExampleKeys_Decode() {
	before := folder(map[string]string{"2025.key": older})
	defer os.RemoveAll(before)
	after := folder(map[string]string{"2025.key": older, "2026.key": newer, "current": "2026"})
	defer os.RemoveAll(after)
	then, err := codec.Load(before)
	if err != nil {
		log.Fatal(err)
	}
	now, err := codec.Load(after)
	if err != nil {
		log.Fatal(err)
	}
	sealed, err := then.Encode([]*common.Payload{{Data: []byte("of last year")}})
	if err != nil {
		log.Fatal(err)
	}
	opened, err := now.Decode(sealed)
	if err != nil {
		log.Fatal(err)
	}
	again, err := now.Encode(opened)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s under %s, now under %s\n", opened[0].Data, sealed[0].Metadata[codec.MetadataKeyID], again[0].Metadata[codec.MetadataKeyID])
	// Output:
	// of last year under 2025, now under 2026
}

// The objects of a store are encrypted with the same keys.
func ExampleKeys() {
	ctx := context.Background()
	dir := folder(map[string]string{"2026.key": newer})
	defer os.RemoveAll(dir)
	keys, err := codec.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	s, err := store.Open(ctx, "mem://", keys)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := s.Objects.Create(ctx, "secret.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(w, "a secret")
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	r, err := s.Objects.Read(ctx, "secret.txt", 2, -1)
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	var word string
	_, err = fmt.Fscan(r, &word)
	fmt.Println(word, err)
	// Output:
	// secret <nil>
}

// Whoever lacks a key is told which.
func ExampleUnknownKeyError() {
	dir := folder(map[string]string{"2026.key": newer})
	defer os.RemoveAll(dir)
	keys, err := codec.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	_, err = keys.Derive("2025", nil, "an object")
	var unknown *codec.UnknownKeyError
	if errors.As(err, &unknown) {
		fmt.Println("lacks", unknown.ID, "and has", unknown.Known)
	}
	// Output:
	// lacks 2025 and has [2026]
}

// A server lets the Web UI and `temporal --codec-endpoint` show what is encrypted.
func ExampleNewHandler() {
	dir := folder(map[string]string{"2026.key": newer})
	defer os.RemoveAll(dir)
	keys, err := codec.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	secret, err := keys.Secret()
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(codec.NewHandler(keys, codec.HandlerOptions{Secret: secret}))
	defer server.Close()

	sealed, err := keys.Encode([]*common.Payload{{Data: []byte("a secret")}})
	if err != nil {
		log.Fatal(err)
	}
	remote := converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: server.URL + "/" + secret})
	opened, err := remote.Decode(sealed)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(opened[0].Data))
	answer, err := http.Post(server.URL+"/decode", "application/json", strings.NewReader("{}"))
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println("without the secret:", answer.Status)
	// Output:
	// a secret
	// without the secret: 404 Not Found
}
