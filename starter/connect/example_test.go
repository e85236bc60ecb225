package connect_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/gpumux/gpumux/codec"
	"github.com/gpumux/gpumux/starter"
	"github.com/gpumux/gpumux/starter/connect"
)

// With encrypted payloads and objects, a client needs the workers' keys.
func ExampleDial() {
	keys, err := codec.Load("/etc/gpumux/keys")
	if err != nil {
		log.Fatal(err)
	}
	o := connect.Options{Address: "temporal:7233", Codec: keys}
	c, err := connect.Dial(context.Background(), o)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	options, err := connect.ClientOptions(o)
	if err != nil {
		log.Fatal(err)
	}
	s := &starter.Starter{Client: c, Converter: options.DataConverter, Keys: keys}
	defer s.Close()
}

// Without a server, the error says what to do.
func ExampleError() {
	_, err := connect.Dial(context.Background(), connect.Options{Address: "127.0.0.1:1", Plain: true, Timeout: time.Second})
	var away *connect.Error
	if errors.As(err, &away) {
		fmt.Println(away.Address)
		fmt.Println(away.Hint)
	}
	// Output:
	// 127.0.0.1:1
	// start one with `gpumux dev`, give --address or TEMPORAL_ADDRESS, or run this map alone with --local
}
