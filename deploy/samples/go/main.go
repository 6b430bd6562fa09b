// Turns token ids into one vector.
//
//	go generate   # stubs from encoder.proto; needs protoc
//	go run . 127.0.0.1:50051 101 7592 102
package main

//go:generate sh generate.sh

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	encoderpb "encoderd.example/sample/encoderpb"
)

// The server refuses an answer that is larger than max_response_bytes, and gRPC one that is larger
// than its own limit: the two belong together.
const maxResponseBytes = 64 << 20

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: sample HOST:PORT ID...")
	}
	ids := make([]int32, 0, len(os.Args)-2)
	for _, word := range os.Args[2:] {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			log.Fatal(err)
		}
		ids = append(ids, int32(id))
	}
	if err := run(os.Args[1], ids); err != nil {
		explain(err)
		os.Exit(1)
	}
}

func run(address string, ids []int32) error {
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponseBytes)))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := encoderpb.NewEncoderServiceClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	model, err := client.GetModel(ctx, &encoderpb.GetModelRequest{})
	if err != nil {
		return err
	}
	fmt.Printf("model %s: %d layers, hidden size %d\n", model.Name, model.NumLayers, model.HiddenSize)

	answer, err := client.Encode(ctx, &encoderpb.EncodeRequest{
		Sequences: []*encoderpb.Sequence{{InputIds: ids}},
		Outputs: &encoderpb.OutputSpec{
			Pooled: []*encoderpb.PoolingSpec{{Kind: encoderpb.Pooling_POOLING_MEAN}},
		},
		MaxResponseBytes: maxResponseBytes,
	})
	if err != nil {
		return err
	}
	vector, err := floats(answer.Pooled[0])
	if err != nil {
		return err
	}
	fmt.Printf("%d tokens -> %d numbers:", len(ids), len(vector))
	for _, x := range vector[:min(4, len(vector))] {
		fmt.Printf(" %.6f", x)
	}
	fmt.Println()
	return nil
}

// floats reads an fp32 tensor, row by row.
func floats(tensor *encoderpb.Tensor) ([]float32, error) {
	elements := int64(1)
	for _, length := range tensor.Shape {
		elements *= length
	}
	if tensor.Dtype != encoderpb.DataType_DATA_TYPE_FP32 || elements*4 != int64(len(tensor.Data)) {
		return nil, fmt.Errorf("expected fp32 of shape %v, got %v and %d bytes",
			tensor.Shape, tensor.Dtype, len(tensor.Data))
	}
	values := make([]float32, elements)
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(tensor.Data[4*i:]))
	}
	return values, nil
}

// explain prints an error with the violations that the server found.
func explain(err error) {
	log.Print(err)
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, violation := range bad.FieldViolations {
				log.Printf("  %s: %s", violation.Field, violation.Description)
			}
		}
	}
}
