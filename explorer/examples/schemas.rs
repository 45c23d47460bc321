//! Prints the schemas of the explorer's interface, from which the page's types are generated
//! (`make page-types`).

fn main() {
    println!("{}", quorate_explorer::api::schemas_json());
}
