"""Claims on the node: preparing and unpreparing them, their records, claims of earlier forms, reports of use."""
