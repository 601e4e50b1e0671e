/*
 * virtqemud starts libvirt for virt-launcher. Debian has only the monolithic daemon, libvirtd;
 * virt-launcher starts /usr/sbin/virtqemud, connects to virtqemud-sock, and KubeVirt looks for
 * a process of the name virtqemud. With no driver but QEMU's installed, a copy of libvirtd
 * under that name serves as it.
 */
#include <stdio.h>
#include <unistd.h>

static void link_socket(const char *target, const char *path)
{
	unlink(path);
	if (symlink(target, path) != 0)
		perror(path);
}

int main(int argc, char **argv)
{
	(void)argc;
	link_socket("libvirt-sock", "/var/run/libvirt/virtqemud-sock");
	link_socket("libvirt-sock-ro", "/var/run/libvirt/virtqemud-sock-ro");
	argv[0] = "virtqemud";
	execv("/usr/libexec/joulevirt/virtqemud", argv);
	perror("/usr/libexec/joulevirt/virtqemud");
	return 1;
}
