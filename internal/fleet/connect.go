package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/envconfig"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"

	"github.com/gpumux/gpumux/codec"
)

// Options says which Temporal to use. Empty fields come from Temporal's conventions:
// TEMPORAL_ADDRESS and so on, and temporal.toml.
type Options struct {
	// File is a connection file, which stands for Temporal's conventions. Default: none.
	File string
	// Address is host:port. Default: that of File, else Temporal's conventions, else
	// 127.0.0.1:7233.
	Address string
	// Namespace default: Temporal's conventions, else "default".
	Namespace string
	// Timeout bounds the first contact. Default 5 s.
	Timeout time.Duration
	// Plain ignores Temporal's conventions, for a server in this process.
	Plain bool
	// Token is the secret of a server in this process. Default: nothing.
	Token string
	// Codec decodes the workers' payloads. Default: TEMPORAL_CODEC_ENDPOINT, else none.
	Codec converter.PayloadCodec
}

// ConnectError says that Temporal could not be used, why, and what to do.
type ConnectError struct {
	// Address is empty when the server went away later.
	Address, Hint string
	Err           error
	// settings: it was not even asked.
	settings bool
}

func (e *ConnectError) Error() string {
	switch {
	case e.settings:
		return fmt.Sprintf("the settings of Temporal cannot be used: %v; %s", e.Err, e.Hint)
	case e.Address == "":
		return fmt.Sprintf("Temporal does not answer any more: %v; %s", e.Err, e.Hint)
	}
	return fmt.Sprintf("connect to Temporal at %s: %v; %s", e.Address, e.Err, e.Hint)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Dial dials Temporal and checks that the namespace exists. Its errors are *ConnectError.
func Dial(ctx context.Context, o Options) (client.Client, error) {
	options, file, err := ClientOptions(o)
	if err != nil {
		return nil, err
	}
	reachHint := "start one with `gpumux dev`, or give its address or TEMPORAL_ADDRESS"
	if file.StoreID != "" {
		reachHint = "start the server again with its data folder, or give another connection file or address"
	}
	dialing, cancel := context.WithTimeout(ctx, cmp.Or(max(o.Timeout, 0), 5*time.Second))
	defer cancel()
	fail := func(err error, hint string) error {
		return &ConnectError{Address: options.HostPort, Hint: hint, Err: err}
	}
	c, err := client.DialContext(dialing, options)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if cause := refused(ctx, options.HostPort); cause != nil {
			return nil, fail(cause, reachHint)
		}
		if errors.As(err, new(*serviceerror.PermissionDenied)) {
			return nil, fail(err, "check TEMPORAL_API_KEY or the TLS certificate; to a server of `gpumux dev --listen` connect with the file that it names")
		}
		return nil, fail(err, "something answers there, but not Temporal as configured: check the port and the TLS settings, connect to a server of `gpumux dev --listen` with the file that it names, or "+reachHint)
	}
	_, err = c.WorkflowService().DescribeNamespace(dialing, &workflowservice.DescribeNamespaceRequest{Namespace: options.Namespace})
	switch {
	case errors.As(err, new(*serviceerror.NamespaceNotFound)), errors.As(err, new(*serviceerror.NotFound)):
		err = fail(fmt.Errorf("there is no namespace %q", options.Namespace), "give another namespace or TEMPORAL_NAMESPACE")
	case err != nil && dialing.Err() != nil:
		err = fail(err, reachHint)
	default: // other errors: a key may be allowed to run workflows but not to describe the namespace
		return c, nil
	}
	c.Close()
	return nil, err
}

// ClientOptions returns the SDK's options for Dial, and what the file that names the
// server says of its store. The SDK's own log is silent. With a codec, which runs at the
// connection, the options have a FailureConverter.
func ClientOptions(o Options) (options client.Options, file File, err error) {
	var profile envconfig.ClientConfigProfile
	if !o.Plain {
		if profile, file, err = o.read(); err == nil {
			options, err = profile.ToClientOptions(envconfig.ToClientOptionsRequest{})
		}
		if err != nil {
			hint := "correct temporal.toml, or point TEMPORAL_CONFIG_FILE at another file, or correct the TEMPORAL_ variables"
			if o.File != "" {
				hint = "give the file that `gpumux dev --listen` has written"
			}
			return options, file, &ConnectError{Address: o.Address, Err: err, settings: true, Hint: hint}
		}
		if o.Address != "" {
			file = File{}
		} else if file.StoreID != "" { // the server is one of ours
			options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithNoProxy(), grpc.WithResolvers(&fileResolver{
				last: profile.Address, read: func() string {
					now, _, _ := o.read()
					return now.Address
				}}))
		}
	}
	options.HostPort = cmp.Or(o.Address, options.HostPort, "127.0.0.1:7233")
	options.Namespace = cmp.Or(o.Namespace, options.Namespace, client.DefaultNamespace)
	var encoding payloadCodec
	switch remote := profile.Codec; {
	case o.Codec != nil:
		encoding = func(context.Context) converter.PayloadCodec { return o.Codec }
	case remote != nil && remote.Endpoint != "":
		encoding = remoteCodec(remote.Endpoint, remote.Auth, options.Namespace)
	}
	if encoding != nil {
		options.FailureConverter = codec.Failures(nil)
		options.ConnectionOptions.DialOptions = append(options.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(intercept(encoding)))
	}
	if o.Token != "" {
		options.HeadersProvider = bearer(o.Token)
	}
	if host, _, _ := net.SplitHostPort(options.HostPort); net.ParseIP(host).IsLoopback() {
		options.ConnectionOptions.GrpcCompression = &client.GrpcCompressionNone{}
	}
	options.WorkerHeartbeatInterval = 10 * time.Second // so that busy workers are seen
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	if _, _, err := net.SplitHostPort(options.HostPort); err != nil && !strings.Contains(options.HostPort, "://") {
		return options, file, &ConnectError{Address: options.HostPort, Err: err, Hint: "write the address as host:port, such as 127.0.0.1:7233"}
	}
	return options, file, nil
}

type bearer string

func (b bearer) GetHeaders(context.Context) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// refused asks the address itself, since gRPC reports a closed port only as a deadline.
func refused(ctx context.Context, address string) error {
	if strings.Contains(address, "://") {
		return nil
	}
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// Encoded reports whether a payload went through a codec that this process lacks.
func Encoded(err error) bool { return errors.Is(err, converter.ErrEncodingIsNotSupported) }

// WithCodecHint adds to such an error what to do.
func WithCodecHint(err error) error {
	if !Encoded(err) {
		return err
	}
	return fmt.Errorf("it went through a codec that is missing here; give the workers' codec, or its server in TEMPORAL_CODEC_ENDPOINT: %w", err)
}

// Unreachable reports whether err is about the connection and may pass.
func Unreachable(err error) bool {
	return errors.As(err, new(*serviceerror.Unavailable)) || errors.As(err, new(*serviceerror.DeadlineExceeded)) ||
		errors.As(err, new(*serviceerror.ResourceExhausted)) || errors.Is(err, context.DeadlineExceeded)
}
