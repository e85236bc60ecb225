package fleet

import (
	"context"
	"iter"

	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
)

// Workflows yields what a query finds.
func (f *Fleet) Workflows(ctx context.Context, query string) iter.Seq2[*workflowpb.WorkflowExecutionInfo, error] {
	return func(yield func(*workflowpb.WorkflowExecutionInfo, error) bool) {
		request := &workflowservice.ListWorkflowExecutionsRequest{Namespace: f.namespace(), PageSize: 100, Query: query}
		for {
			page, err := f.Client.ListWorkflow(ctx, request)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, info := range page.GetExecutions() {
				if !yield(info, nil) {
					return
				}
			}
			if request.NextPageToken = page.GetNextPageToken(); len(request.NextPageToken) == 0 {
				return
			}
		}
	}
}
