#!/usr/bin/env python3
"""Verifies a block of a Quorate explorer with the chain's trust file alone.

    curl -s http://127.0.0.1:26608/v1/blocks/1200 | python3 verify_block.py trust.json 1200

The second argument is what you asked for, a height or an id. Without it, any final block is accepted: an explorer
may have answered with another one than you wanted.

If the chain's validators can change, the trust file knows those of one epoch, and handovers lead to later ones:

    curl -s 'http://127.0.0.1:26608/v1/handovers?after=0' > handovers.json
    curl -s http://127.0.0.1:26608/v1/blocks/1200 |
        python3 verify_block.py trust.json 1200 --handovers handovers.json

`after` is the trust file's `epoch`, or 0. The file is one answer, or a JSON list of several.

Needs py_ecc, which is slow (some seconds) and simple. docs/FORMATS.md describes the formats.
"""

import argparse
import hashlib
import json
import sys

try:
    from py_ecc.bls.hash_to_curve import hash_to_G1
    from py_ecc.bls.point_compression import decompress_G1, decompress_G2
    from py_ecc.optimized_bls12_381 import G2, add, curve_order, is_inf, multiply, pairing
except ImportError:
    # check_body does without.
    if __name__ == "__main__":
        sys.exit("py_ecc is missing: pip install py_ecc")

DOMAIN = b"QUORATE-V1-BLS12381G1_XMD:SHA-256_SSWU_RO_VOTE"
HEADER_BYTES, TRANSFER_BYTES, SIGNATURE_BYTES, FINALIZE = 177, 97, 64, 3
PLAIN, WITH_MEMO, MAX_MEMO_BYTES = 1, 2, 4096
REGISTRY = b"quorate/registry/operations/0001"
MAX_VALIDATORS = 1024


def require(condition, problem):
    # No assert: `python3 -O` leaves those out.
    if not condition:
        raise ValueError(problem)


def unhex(text):
    return bytes.fromhex(text.removeprefix("0x"))


def sha256(*parts):
    return hashlib.sha256(b"".join(parts)).digest()


def point_g1(data):
    point = decompress_G1(int.from_bytes(data, "big"))
    require(not is_inf(point) and is_inf(multiply(point, curve_order)), "not in the subgroup")
    return point


def point_g2(data):
    require(len(data) == 96, "a key has 96 bytes")
    point = decompress_G2((int.from_bytes(data[:48], "big"), int.from_bytes(data[48:], "big")))
    require(not is_inf(point) and is_inf(multiply(point, curve_order)), "not in the subgroup")
    return point


def merkle_root(leaves):
    if not leaves:
        return bytes(32)
    if len(leaves) == 1:
        return sha256(b"\x00", leaves[0])
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha256(b"\x01", merkle_root(leaves[:split]), merkle_root(leaves[split:]))


def transaction_bytes(data):
    """The length of the transaction that the data begin with: a transfer and its signature."""
    if data[0] == PLAIN:
        return TRANSFER_BYTES + SIGNATURE_BYTES
    require(data[0] == WITH_MEMO, "a transaction of an unknown version")
    memo = int.from_bytes(data[TRANSFER_BYTES:TRANSFER_BYTES + 2], "big")
    require(1 <= memo <= MAX_MEMO_BYTES, "a memo of a wrong length")
    return TRANSFER_BYTES + 2 + memo + SIGNATURE_BYTES


def check_body(block):
    """The transactions are those that the header commits to. Returns the header."""
    header, rest = block[:HEADER_BYTES], block[HEADER_BYTES:]
    count, rest = int.from_bytes(rest[:4], "big"), rest[4:]
    transactions = []
    while rest:
        length = transaction_bytes(rest)
        require(length <= len(rest), "the block ends within a transaction")
        transactions.append(rest[:length])
        rest = rest[length:]
    require(len(transactions) == count, "the block has another number of transactions")
    require(merkle_root([sha256(t) for t in transactions]) == header[-32:], "other transactions")
    return header


class Reader:
    """Bytes, read from front to back."""

    def __init__(self, data):
        self.data = data

    def take(self, length):
        require(length <= len(self.data), "the encoding ends too early")
        part, self.data = self.data[:length], self.data[length:]
        return part

    def number(self, length):
        return int.from_bytes(self.take(length), "big")

    def end(self):
        require(not self.data, "there are bytes after the encoding")


def read_header(data):
    """The fields of a header that are needed here."""
    require(len(data) == HEADER_BYTES and data[0] == 1, "a header of an unknown version")
    number = lambda at: int.from_bytes(data[at:at + 8], "big")
    return {"chain": data[1:33], "epoch": number(33), "height": number(49), "executed": number(105),
            "state_root": data[113:145], "id": sha256(data)}


def certificate_bytes(data):
    """The length of the aggregate certificate that the data begin with."""
    require(data[0] == 1 and data[50] == 1, "not an aggregate certificate")
    return 53 + (int.from_bytes(data[51:53], "big") + 7) // 8 + 48


def proven_value(data, key, root):
    """What the state with this root holds under a key."""
    proof = Reader(data)
    require(proof.number(1) == 1, "a proof of an unknown version")
    depth = proof.number(1)
    siblings = [proof.take(32) for _ in range(depth)]
    leaf = proof.data
    entries = []
    for _ in range(proof.number(1)):
        entry = proof.take(32)
        entries.append((entry, proof.take(proof.number(1))))
    proof.end()
    way = int.from_bytes(key, "big")
    shared = 256 - depth
    for entry, _ in entries:
        require(int.from_bytes(entry, "big") >> shared == way >> shared, "a proof of another account")
    node = sha256(bytes([0, depth]), leaf) if entries else bytes(32)
    for bit in reversed(range(depth)):
        is_left = not way >> (255 - bit) & 1
        pair = (node, siblings[bit]) if is_left else (siblings[bit], node)
        node = sha256(b"\x01", *pair)
    require(node == root, "the proof does not lead to the header's state root")
    values = dict(entries)
    require(key in values, "the state does not have the registry's account")
    return values[key]


def read_note(value):
    """What the registry's account says: an epoch, and the digest of the next epoch's validator set."""
    account = Reader(value)
    require(account.number(1) == 3, "the registry's account has no note")
    account.take(16)
    epoch = account.number(8)
    account.take(account.number(2))
    tag = account.number(1)
    require(tag in (0, 1), "a note of an unknown form")
    digest = account.take(32) if tag else None
    account.end()
    return epoch, digest


def read_set(data):
    """A validator set's epoch, and its members in the form of the trust file."""
    source = Reader(data)
    require(source.number(1) == 1, "a validator set of an unknown version")
    epoch, count = source.number(8), source.number(4)
    require(1 <= count <= MAX_VALIDATORS, "a validator set of a wrong size")
    members = []
    for _ in range(count):
        identity, vote_key = source.take(32).hex(), source.take(96).hex()
        members.append({"identity": identity, "vote_key": vote_key})
        source.take(source.number(1))  # the address
        source.take(source.number(1))  # the name
    source.end()
    for field in ("identity", "vote_key"):
        require(len({member[field] for member in members}) == count, f"two members with one {field}")
    return epoch, members


def check_handover(known, data):
    """The trust that a handover leads to. `known` are those before it, oldest first."""
    source = Reader(data)
    require(source.number(1) == 1, "a handover of an unknown version")
    header_bytes = source.take(HEADER_BYTES)
    certificate = source.take(certificate_bytes(source.data))
    proof = source.take(source.number(4))
    encoded_set = source.data
    header, (epoch, members) = read_header(header_bytes), read_set(encoded_set)
    trust, blocks = known[-1], known[-1]["epoch_blocks"]
    last = (header["epoch"] + 1) * blocks
    require(header["chain"] == unhex(trust["chain_id"]), "another chain")
    require(epoch == header["epoch"] + 1, "the validators are of another epoch than the next one")
    require(header["height"] == last, "its block is not the last one of the epoch")
    require(header["executed"] >= last - blocks // 2, "its state is older than the choice of validators")
    note = read_note(proven_value(proof, sha256(REGISTRY), header["state_root"]))
    digest = sha256(b"quorate/validator-set/1", encoded_set)
    require(note == (header["epoch"], digest), "the state names other validators")
    for member in members:
        point_g2(unhex(member["vote_key"]))
    subject_epoch = int.from_bytes(certificate[1:9], "big")
    require(subject_epoch == header["epoch"], "its certificate is of another epoch")
    check_certificate(trust_at(known, header["epoch"]), certificate, header["id"])
    return {**trust, "epoch": epoch, "validators": members}


def follow(trust, answers):
    """The trust file's validators and all that handovers lead to, oldest first."""
    known = [trust]
    if "group_key" in trust:
        # It stays when the validators change.
        return known
    for answer in answers:
        for item in answer["handovers"]:
            data = unhex(item["handover"])
            # One more than its header's epoch; what the list says of it is not used.
            epoch = int.from_bytes(data[34:42], "big") + 1
            if epoch <= known[-1].get("epoch", 0):
                continue
            require("epoch_blocks" in trust, "the validators of this chain never change")
            try:
                known.append(check_handover(known, data))
            except (ValueError, IndexError) as error:
                raise ValueError(f"the handover to epoch {epoch}: {error}") from None
    return known


def trust_at(known, epoch):
    """The newest validators that are known to have been there in an epoch."""
    fitting = [trust for trust in known if trust.get("epoch", 0) <= epoch]
    first = known[0].get("epoch", 0)
    require(fitting, f"this is of epoch {epoch}, the trust file knows the validators from epoch {first} on: "
            "take a trust file of before")
    return fitting[-1]


def group_key(trust, proof):
    """The key that the certificate must verify under, and its signature."""
    if trust["scheme"] == "bls-threshold":
        require(proof[0] == 0 and len(proof) == 49, "another scheme's proof")
        return point_g2(unhex(trust["group_key"])), proof[1:]
    validators = trust["validators"]
    size = (len(validators) + 7) // 8
    require(proof[0] == 1 and len(proof) == 3 + size + 48, "another scheme's proof")
    require(int.from_bytes(proof[1:3], "big") == len(validators), "another committee")
    bitmap = proof[3:3 + size]
    signers = [i for i in range(8 * size) if bitmap[i // 8] >> (i % 8) & 1]
    quorum = len(validators) - (len(validators) - 1) // 3
    require(len(signers) >= quorum and max(signers) < len(validators), "no quorum")
    key = None
    for signer in signers:
        # That each key's owner knows its secret was proven when the trust file was made.
        point = point_g2(unhex(validators[signer]["vote_key"]))
        key = point if key is None else add(key, point)
    return key, proof[3 + size:]


def check_certificate(trust, certificate, block_id):
    require(certificate[0] == 1, "unknown version")
    subject, proof = certificate[1:50], certificate[50:]
    require(subject[16] == FINALIZE and subject[17:] == block_id, "finalises something else")
    key, signature = group_key(trust, proof)
    message = b"quorate/vote/1" + unhex(trust["chain_id"]) + subject
    hashed = hash_to_G1(message, DOMAIN, hashlib.sha256)
    left, right = pairing(G2, point_g1(signature)), pairing(key, hashed)
    require(left == right, "no quorum stands behind the certificate")


def check_asked(header, asked):
    """The block is the one that was asked for: by its height, or by its id."""
    if isinstance(asked, int) or str(asked).isdigit() and len(str(asked)) <= 20:
        height = int.from_bytes(header[49:57], "big")
        require(height == int(asked), f"this is block {height}, not {asked}")
    else:
        require(sha256(header) == unhex(asked), "this block has another id than was asked for")


def check_finality(known, certificate, header):
    """The certificate finalises the header's block, with the validators of its epoch."""
    fields, block_id = read_header(header), sha256(header)
    epoch, blocks = fields["epoch"], known[0].get("epoch_blocks")
    # Otherwise former validators could sign blocks of any height, as ones of their own epoch.
    require(blocks is None or (fields["height"] - 1) // blocks == epoch,
            "the block is of another epoch than its height says")
    require(certificate[1:9] == header[33:41], "the certificate is of another epoch than the block")
    trust = trust_at(known, epoch)
    try:
        check_certificate(trust, certificate, block_id)
    except ValueError as error:
        first = trust.get("epoch", 0)
        if trust is not known[-1] or epoch <= first or "epoch_blocks" not in trust:
            raise
        raise ValueError(f"{error}; the certificate is of epoch {epoch}, and the newest validators that are known "
                         f"are those from epoch {first} on: if they have changed, --handovers is needed, with all "
                         f"changes up to epoch {epoch}") from None


def verify(trust, answer, asked=None, handovers=()):
    """Returns the header of a block that is final, or raises ValueError. `handovers` are answers of
    /v1/handovers, in order."""
    header = check_body(unhex(answer["block"]))
    if asked is not None:
        check_asked(header, asked)
    require(header[0] == 1 and header[1:33] == unhex(trust["chain_id"]), "another chain")
    last = header
    for text in answer["finality"]["headers"]:
        following = unhex(text)
        require(len(following) == HEADER_BYTES and following[57:89] == sha256(last), "no chain")
        last = following
    check_finality(follow(trust, handovers), unhex(answer["finality"]["certificate"]), last)
    return header


def load(path):
    with open(path) as file:
        return json.load(file)


def main():
    parser = argparse.ArgumentParser(description="Verifies a block, read from standard input.")
    parser.add_argument("trust", help="the chain's trust file")
    parser.add_argument("asked", nargs="?", help="the height or the id that was asked for")
    parser.add_argument("--handovers", help="a file with an answer of /v1/handovers, or a list of them")
    arguments = parser.parse_args()
    trust = load(arguments.trust)
    handovers = load(arguments.handovers) if arguments.handovers else []
    if isinstance(handovers, dict):
        handovers = [handovers]
    try:
        header = verify(trust, json.load(sys.stdin), arguments.asked, handovers)
    except KeyError as missing:
        sys.exit(f"NOT VERIFIED: the field {missing} is missing; this reads blocks as an explorer serves them")
    except (ValueError, IndexError, TypeError, AttributeError) as error:
        sys.exit(f"NOT VERIFIED: {error}")
    height = int.from_bytes(header[49:57], "big")
    print(f"block {height}, 0x{sha256(header).hex()}: a quorum of {trust['name']} finalised it")


if __name__ == "__main__":
    main()
