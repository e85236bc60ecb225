package names_test

import (
	"fmt"

	"github.com/gpumux/gpumux/internal/names"
)

func ExampleKey() {
	for _, key := range []string{"results/today.jsonl", "../passwd", "/etc/passwd"} {
		fmt.Println(names.Key(key))
	}
	// Output:
	// <nil>
	// "../passwd" is not a key: it holds ..; write it as folder/name.jsonl
	// "/etc/passwd" is not a key: it begins or ends with a slash or holds two in a row; write it as folder/name.jsonl
}

func ExamplePool() {
	fmt.Println(names.Pool("a100"), names.Pool("a 100"))
	// Output:
	// <nil> pool name "a 100": use 1 to 63 lower-case letters, digits and dashes, such as gpu or h200-16g
}
