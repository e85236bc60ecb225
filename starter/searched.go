package starter

import (
	"context"
	"errors"
	"strings"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/gpumux/gpumux"
)

// longestKeyword is the most bytes of a Keyword that servers with an SQL database take.
const longestKeyword = 255

// execute starts the workflow of a map, with search attributes where the server has them. They are never why a start fails.
func (s *Starter) execute(ctx context.Context, options client.StartWorkflowOptions, in gpumux.MapInput) (client.WorkflowRun, error) {
	if s.searchable(ctx) {
		with := options
		with.TypedSearchAttributes = temporal.NewSearchAttributes(
			temporal.NewSearchAttributeKeyKeyword(gpumux.SearchTask).ValueSet(strings.ToValidUTF8(in.Task[:min(len(in.Task), longestKeyword)], "")),
			temporal.NewSearchAttributeKeyInt64(gpumux.SearchFailed).ValueSet(0))
		run, err := s.Client.ExecuteWorkflow(ctx, with, gpumux.MapWorkflow, in)
		var refused *serviceerror.InvalidArgument
		if !errors.As(err, &refused) {
			return run, err
		}
	}
	return s.Client.ExecuteWorkflow(ctx, options, gpumux.MapWorkflow, in)
}

// searchable reports whether the namespace has both attributes; the server is asked once.
func (s *Starter) searchable(ctx context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.searched == nil {
		answer, err := s.Client.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: s.namespace()})
		if err != nil && ctx.Err() != nil {
			return false
		}
		there := answer.GetCustomAttributes()
		has := err == nil && there[gpumux.SearchTask] == enumspb.INDEXED_VALUE_TYPE_KEYWORD && there[gpumux.SearchFailed] == enumspb.INDEXED_VALUE_TYPE_INT
		s.searched = &has
	}
	return *s.searched
}
