package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpumux/gpumux"
	"github.com/gpumux/gpumux/internal/contract"
	"github.com/gpumux/gpumux/internal/items"
	"github.com/gpumux/gpumux/store"
)

// A store is a folder behind a blob URL. An object is there as a whole or not at all.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	s, err := store.Open(ctx, "file://"+filepath.ToSlash(dir), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	w, err := s.Objects.Create(ctx, "inputs/texts.jsonl")
	if err != nil {
		log.Fatal(err)
	}
	defer w.Abort() // does nothing after Close
	fmt.Fprintln(w, `"one"`)
	fmt.Fprintln(w, `"two"`)
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "inputs", "texts.jsonl"))
	fmt.Printf("%s%v\n", text, err)
	// Output:
	// "one"
	// "two"
	// <nil>
}

// An input of any size is checked, counted and put into the store once. Then any stretch
// of it can be read.
func ExampleSpool_put() {
	ctx := context.Background()
	s, err := store.Open(ctx, "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	in, err := store.Spool(strings.NewReader("name,age\nAda,36\nAlan,41\nGrace,85\n"), "people.csv", store.FormatCSV)
	if err != nil {
		log.Fatal(err)
	}
	defer in.Remove()
	src, err := s.Sources.Put(ctx, in)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(src.Items, "items")
	for item, err := range s.Sources.Items(ctx, src, 1, 3) {
		fmt.Println(string(item), err)
	}
	// Output:
	// 3 items
	// {"name":"Alan","age":41} <nil>
	// {"name":"Grace","age":85} <nil>
}

// A mistake in an input file is reported with its line before anything runs.
func ExampleSpool() {
	_, err := store.Spool(strings.NewReader("{\"n\": 1}\n{\"n\": two}\n"), "items.jsonl", store.FormatJSONLines)
	var wrong *store.SourceError
	if errors.As(err, &wrong) {
		fmt.Printf("%s:%d: %s\n", wrong.Name, wrong.Line, wrong.Hint)
	}
	// Output:
	// items.jsonl:2: write one JSON value per line; text goes in double quotes
}

func Example_formatOf() {
	format, err := items.FormatOf("people.csv.gz")
	fmt.Println(format == items.CSV, err)
	_, err = items.FormatOf("people.xlsx")
	fmt.Println(err != nil)
	// Output:
	// true <nil>
	// true
}

// Workers store parts in any order. The merge makes one results file in the order of the
// input.
func ExampleStore_Merge() {
	ctx := context.Background()
	s, err := store.Open(ctx, "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for _, part := range [][]gpumux.Result{
		{{Index: 2, Value: []byte(`4`)}},
		{{Index: 0, Value: []byte(`0`)}, {Index: 1, Fault: &gpumux.Fault{Kind: gpumux.FaultTimeout, Message: "no result after 2s"}}},
	} {
		if err := s.WritePart(ctx, "squares.parts", part); err != nil {
			log.Fatal(err)
		}
	}
	merged, err := s.Merge(ctx, contract.MergeInput{Parts: "squares.parts", Output: "squares.jsonl", Items: 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(merged.Succeeded, "succeeded,", merged.Failed, "failed")
	for r, err := range s.Results(ctx, "squares.jsonl") {
		fmt.Println(r.Index, string(r.Value), r.Fault != nil, err)
	}
	// Output:
	// 2 succeeded, 1 failed
	// 0 0 false <nil>
	// 1  true <nil>
	// 2 4 false <nil>
}

// A tail reads the results of a running map, each once and in order.
func ExampleFolder_Tail() {
	ctx := context.Background()
	s, err := store.Open(ctx, "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	folder, err := s.Folder("squares.parts")
	if err != nil {
		log.Fatal(err)
	}
	tail, to := folder.Tail(false), folder.Append()
	for _, index := range []int64{0, 2, 1} {
		if err := to.Add(gpumux.Result{Index: index, Value: fmt.Append(nil, index*index)}); err != nil {
			log.Fatal(err)
		}
		if err := to.Flush(ctx); err != nil {
			log.Fatal(err)
		}
		fmt.Println("stored", index)
		for line, err := range tail.Lines(ctx, nil) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("  read", string(line))
		}
	}
	// Output:
	// stored 0
	//   read {"index":0,"value":0}
	// stored 2
	// stored 1
	//   read {"index":1,"value":1}
	//   read {"index":2,"value":4}
}

// A name from outside can never reach files outside the store.
func ExampleNameError() {
	s, err := store.Open(context.Background(), "mem://", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	for _, name := range []string{"maps/a/results.jsonl", "../secret", "file:///etc/passwd"} {
		_, err := s.Objects.Key(name)
		fmt.Println(name, "may be named:", err == nil)
	}
	// Output:
	// maps/a/results.jsonl may be named: true
	// ../secret may be named: false
	// file:///etc/passwd may be named: false
}

// A file's name says how it is compressed.
func Example_pack() {
	var file strings.Builder
	to, err := items.Pack(&file, "items.jsonl.zst")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := io.WriteString(to, "1\n2\n3\n"); err != nil {
		log.Fatal(err)
	}
	if err := to.Close(); err != nil {
		log.Fatal(err)
	}
	in, err := store.Spool(strings.NewReader(file.String()), "items", store.FormatJSONLines)
	if err != nil {
		log.Fatal(err)
	}
	defer in.Remove()
	fmt.Println(in.Items, "items")
	// Output:
	// 3 items
}
