package launch_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/gpumux/gpumux/internal/launch"
)

// An edition changes with a task's file and with the modules beside it that it imports,
// and with nothing else.
func ExampleCode_Edition() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	write("embed.py", "import model\n\ndef embed(item):\n    return model.size\n")
	write("model.py", "size = 8\n")
	code := launch.Code{Dir: dir, Target: "embed.py:embed"}
	first := code.Edition()
	write("notes.txt", "nobody imports this\n")
	fmt.Println("beside it:", code.Edition() == first)
	write("model.py", "size = 16\n\n")
	fmt.Println("what it imports:", code.Edition() == first)
	// Output:
	// beside it: true
	// what it imports: false
}
