package codec_test

import (
	"fmt"
	"log"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"

	"github.com/gpumux/gpumux/codec"
)

// A service passes all that Temporal keeps of it through the workers' codec, which here
// is that of a server.
func ExampleApply() {
	options := client.Options{HostPort: "temporal:7233"}
	codec.Apply(&options, converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{Endpoint: "https://codec:8443"}))
	c, err := client.Dial(options)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
}

// Payloads go through the codec, here one of the SDK's that compresses them.
func ExampleConverter() {
	data := codec.Converter(nil, converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true}))
	payload, err := data.ToPayload("text")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(payload.Metadata[converter.MetadataEncoding]))
	var text string
	if err := data.FromPayload(payload, &text); err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)
	// Output:
	// binary/zlib
	// text
}
