// Package gpumux holds the words of the product as types, such as the input of a map and
// the result of an item. A map starts with any Temporal client:
//
//	run, err := client.ExecuteWorkflow(ctx, options, gpumux.MapWorkflow, gpumux.MapInput{
//		Task:   "embed",
//		Source: "s3://bucket/texts.jsonl",
//		Ladder: []string{"gpu", "cpu"},
//	})
//	if err != nil {
//		return err
//	}
//	var summary gpumux.Summary
//	err = run.Get(ctx, &summary) // summary.Output names the results file
//
// Package workflows maps inside of a workflow of your own, package starter also puts
// large inputs into the store.
//
// It owns the vocabulary that every other package shares, the names that clients see, and
// the rules for valid inputs. It never does input or output and needs only the standard
// library, so that workflow code can use it. It holds no state and so never has to stop.
//
// The words, one per thing:
//
//	task          what the user wrote: a named Python function, Go function or command
//	item          one input of a task: a JSON value
//	map           one durable parallel run of a task over items; a Temporal workflow
//	chunk         the consecutive items that one activity carries
//	result        the outcome of one item: a JSON value, or a fault
//	device        a GPU, a MIG instance, or the CPU
//	slot          the share of a device that one process has, with a memory budget
//	pool          equal slots behind one task queue; a pool has a name
//	task process  the operating-system process in a slot
//	mode          persistent (the process stays) or fresh (one process per item)
//	fault         a classified failure: kind, where, what to do next
//	ladder        the ordered pools that a map may use; a rung is one of them
//	resident      a value kept in a task process between items
//	store         where large inputs and results live: a blob URL
package gpumux
