#!/usr/bin/env python3
"""Verifies a block of a Quorate explorer with the chain's trust file alone.

    curl -s http://127.0.0.1:26608/v1/blocks/1200 | python3 verify_block.py trust.json 1200

The second argument is what you asked for, a height or an id. Without it, any final block is accepted: an explorer
may have answered with another one than you wanted.

Needs py_ecc, which is slow (some seconds) and simple. docs/FORMATS.md describes the formats.
"""

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


def verify(trust, answer, asked=None):
    header = check_body(unhex(answer["block"]))
    if asked is not None:
        check_asked(header, asked)
    require(header[0] == 1 and header[1:33] == unhex(trust["chain_id"]), "another chain")
    last = sha256(header)
    for text in answer["finality"]["headers"]:
        following = unhex(text)
        require(len(following) == HEADER_BYTES and following[57:89] == last, "no chain")
        last = sha256(following)
    check_certificate(trust, unhex(answer["finality"]["certificate"]), last)
    return header


def main():
    with open(sys.argv[1]) as file:
        trust = json.load(file)
    try:
        asked = sys.argv[2] if len(sys.argv) > 2 else None
        header = verify(trust, json.load(sys.stdin), asked)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        sys.exit(f"NOT VERIFIED: {error}")
    height = int.from_bytes(header[49:57], "big")
    print(f"block {height}, 0x{sha256(header).hex()}: a quorum of {trust['name']} finalised it")


if __name__ == "__main__":
    main()
