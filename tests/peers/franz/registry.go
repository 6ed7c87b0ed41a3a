package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
)

// A record of Avro with the fields id (long) and note (string).
type order struct {
	Id   int64
	Note string
}

func encodeOrder(v any) ([]byte, error) {
	o := v.(order)
	data := binary.AppendVarint(nil, o.Id)
	data = binary.AppendVarint(data, int64(len(o.Note)))
	return append(data, o.Note...), nil
}

func decodeOrder(data []byte, v any) error {
	id, n := binary.Varint(data)
	if n <= 0 {
		return errors.New("no id")
	}
	size, m := binary.Varint(data[n:])
	if m <= 0 || int(size) != len(data)-n-m {
		return errors.New("no note")
	}
	*v.(*order) = order{id, string(data[n+m:])}
	return nil
}

// Registers and looks up the schema, writes three records to the topic, and prints the records of the topic From.
func registryStory(ctx context.Context, c configuration) error {
	registry, err := sr.NewClient(sr.URLs(c.Registry))
	if err != nil {
		return err
	}
	subject := c.Topic + "-value"
	created, err := registry.CreateSchema(ctx, subject, sr.Schema{Schema: c.Schema})
	if err != nil {
		return err
	}
	found, err := registry.LookupSchema(ctx, subject, sr.Schema{Schema: c.Schema})
	if err != nil || found.ID != created.ID {
		return fmt.Errorf("lookup returned id %d, not %d: %v", found.ID, created.ID, err)
	}
	if _, err = registry.SchemaByID(ctx, created.ID); err != nil {
		return err
	}
	checked, err := registry.CheckCompatibility(ctx, subject, -1, sr.Schema{Schema: c.Schema})
	if err != nil || !checked.Is {
		return fmt.Errorf("the schema is not compatible with itself: %v", err)
	}
	_, err = registry.LookupSchema(ctx, subject, sr.Schema{Schema: `"int"`})
	var refusal *sr.ResponseError
	if !errors.As(err, &refusal) || refusal.ErrorCode != 40403 {
		return fmt.Errorf("a missing schema is the error %v", err)
	}
	var serde sr.Serde
	serde.Register(created.ID, order{}, sr.EncodeFn(encodeOrder), sr.DecodeFn(decodeOrder))
	opts, err := options(c)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(opts, kgo.ConsumeTopics(c.From))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for i := int64(0); i < 3; i++ {
		data, err := serde.Encode(order{i, fmt.Sprintf("note %d", i)})
		if err != nil {
			return err
		}
		if err = client.ProduceSync(ctx, &kgo.Record{Topic: c.Topic, Value: data}).FirstErr(); err != nil {
			return err
		}
	}
	for count := 0; count < 3; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			id, _, err := serde.DecodeID(record.Value)
			if err != nil {
				return err
			}
			if id != created.ID { // the subject of the other topic has the same schema, so the id is the same
				return fmt.Errorf("a value has the schema id %d, not %d", id, created.ID)
			}
			var value order
			if err := serde.Decode(record.Value, &value); err != nil {
				return err
			}
			fmt.Println(value.Id, value.Note)
			count++
		}
	}
	return nil
}
