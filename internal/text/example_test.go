package text_test

import (
	"fmt"

	"github.com/gpumux/gpumux/internal/text"
)

// Names and messages of others cannot become links or HTML where Markdown is shown.
func ExamplePlain() {
	fmt.Println(text.Plain("embed v2"))
	fmt.Println(text.Plain("[click](http://example.com)"))
	// Output:
	// embed v2
	// `[click](http://example.com)`
}
