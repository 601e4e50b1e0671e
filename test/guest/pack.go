package guest

import "path/filepath"

// Contents are those of an initramfs without a shell.
type Contents struct {
	// Files of this machine, by their paths in the guest without the first slash. The
	// kernel runs "init".
	Files map[string]string
	// Modules of the kernel, which the guest finds in /modules with all that they need:
	// /modules/order has their files in the order to load them in.
	Modules []string
}

// Packed is a kernel and what goes with it.
type Packed struct {
	// Kernel is the path of opts.HostRoot's.
	Kernel string
	// Initramfs is an archive, uncompressed.
	Initramfs []byte
}

// Pack makes an initramfs for the kernel of opts, whose cache is not used.
func Pack(opts Options, contents Contents) (Packed, error) {
	host, release, err := opts.kernel()
	if err != nil {
		return Packed{}, err
	}
	archive, err := pack(host, release, nil, contents.Files, contents.Modules)
	return Packed{Kernel: filepath.Join(host, "boot", "vmlinuz-"+release), Initramfs: archive}, err
}
