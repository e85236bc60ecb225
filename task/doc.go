// Package task is the main of a task process in Go.
//
//	func embed(ctx context.Context, text string) ([]float32, error) { … }
//
//	func main() {
//		if err := task.Serve(context.Background(), map[string]task.Handler{"embed": task.Func(embed)}); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// It owns running items one after the other and turning errors and panics into faults. It
// never starts by itself: a worker starts the program in a slot. It stops when the worker
// says so or is gone.
package task
