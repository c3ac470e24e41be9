// SPDX-License-Identifier: Apache-2.0

// Package schedtest is what other packages' tests need of the kernel's
// sched_ext: a scheduler that is not Temper's.
package schedtest

import (
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

const (
	nameLen   = 128     // of sched_ext_ops.name
	linkFlag  = 1 << 13 // BPF_F_LINK
	keySize   = 4
	valueName = "sched_ext_ops"
)

// foreign is a scheduler of ops that are all the kernel's defaults.
type foreign struct {
	coll *ebpf.Collection
	link link.Link
}

// AttachForeign loads a sched_ext scheduler that has a name and nothing else.
// It schedules the node, in order of arrival, until it is closed.
func AttachForeign(name string) (io.Closer, error) {
	coll, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"ops": ops(name)}})
	if err != nil {
		return nil, fmt.Errorf("load scheduler %s: %w", name, err)
	}
	l, err := link.AttachStructOps(link.StructOpsOptions{Map: coll.Maps["ops"]})
	if err != nil {
		coll.Close()
		return nil, fmt.Errorf("attach scheduler %s: %w", name, err)
	}
	return &foreign{coll, l}, nil
}

func ops(name string) *ebpf.MapSpec {
	char := &btf.Int{Name: "char", Size: 1, Encoding: btf.Char}
	index := &btf.Int{Name: "unsigned int", Size: keySize}
	value := make([]byte, nameLen)
	copy(value, name)
	return &ebpf.MapSpec{
		Name: "foreign_ops", Type: ebpf.StructOpsMap, Flags: linkFlag,
		Key: index, KeySize: keySize, MaxEntries: 1,
		Value: &btf.Struct{Name: valueName, Size: nameLen, Members: []btf.Member{
			{Name: "name", Type: &btf.Array{Index: index, Type: char, Nelems: nameLen}},
		}},
		ValueSize: nameLen,
		Contents:  []ebpf.MapKV{{Key: uint32(0), Value: value}},
	}
}

// Close returns the node to the kernel's own scheduler.
func (f *foreign) Close() error {
	err := f.link.Close()
	f.coll.Close()
	return err
}
